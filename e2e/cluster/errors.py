"""The errors that the local cluster reports to a person."""


class ClusterError(Exception):
    """Something that a person can act on; the message says what is wrong and what to do."""


class CommandError(ClusterError):
    """A program that we ran failed or ran past its deadline; carries the end of what it printed."""

    def __init__(self, program: str, why: str, output: str) -> None:
        tail = output.strip()[-2000:]
        super().__init__(f"{program}: {why}" + (f"\n{tail}" if tail else ""))
        self.output = output
