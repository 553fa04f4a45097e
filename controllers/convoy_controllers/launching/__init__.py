"""Checks whether the commands of a job's pods form one process group, before any pod exists."""
