"""The launcher: the first process (PID 1) of a worker's container. It starts, watches and restarts the
ranks.

The launcher uses the standard library only and runs under CPython from 3.9 on, because it runs in the
user's image.
"""
