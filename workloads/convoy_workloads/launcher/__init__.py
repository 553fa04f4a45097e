"""PID 1 of a worker's container: starts the ranks, watches them, starts them again. Standard library only.

Runs under any CPython from 3.9 on, whatever the image brings.
"""


def main() -> int:
    """Runs the launcher in this process's environment; its exit code."""
    from convoy_workloads.launcher.supervisor import run  # noqa: PLC0415

    return run()
