"""The launcher: PID 1 of a worker's container, which starts, watches and restarts the ranks.

Uses the standard library only and runs under any CPython from 3.9 on, whatever the image contains.
"""
