"""PID 1 of a worker's container: starts the ranks, watches them, starts them again. Standard library only.

Runs under any CPython from 3.9 on, whatever the image brings.
"""
