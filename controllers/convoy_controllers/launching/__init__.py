"""Checks, before a pod exists, whether a job's commands form one process group over its pods."""
