"""Errors that the local cluster reports to its user."""


class ClusterError(Exception):
    """An error that the user can act on. The message says what is wrong and what to do."""


class CommandError(ClusterError):
    """A program failed or exceeded its deadline. The message has the end of the program's output."""

    def __init__(self, program: str, why: str, output: str) -> None:
        tail = output.strip()[-2000:]
        super().__init__(f"{program}: {why}" + (f"\n{tail}" if tail else ""))
        self.output = output
