"""Judges, before a pod exists, whether the commands of a job form one process group over its pods."""
