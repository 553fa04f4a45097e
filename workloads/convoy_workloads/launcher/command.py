"""How a rank's command line is started: forked from the zygote (warm) or executed (cold).

`python FILE ...` and `python -m MODULE ...` are warm. Convoy takes the place of a launcher that starts
processes itself: of `torchrun ... FILE ...` each rank is FILE.
"""
# ruff: noqa: PTH112, PTH113, PTH118, PTH119, PTH120, PTH123 - paths as execvp sees them

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from convoy_commands.launchers import launcher_of
from convoy_commands.python import FILE, MODULE, read_python
from convoy_commands.references import expand
from convoy_workloads.launcher import executables

if TYPE_CHECKING:
    from convoy_commands.launch import Launch

__all__ = ["FILE", "MODULE", "CommandError", "Start", "expand", "interpreter", "parse", "resolve"]

_WARM_OPTIONS = {"u"}
"""Interpreter options that a fork of the zygote honours."""
_SHEBANG = re.compile(rb"^(?:#!|'''exec' )(?P<words>[^\r\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class Start:
    """What to run. `kind` and `target` are set when it may start warm."""

    argv: tuple[str, ...]
    """The command that would be executed cold; argv[0] is looked up on PATH."""
    kind: str | None = None
    target: str = ""
    """Path of the file, or name of the module."""
    launch: Launch | None = None
    """The launcher's command line that Convoy takes the place of."""
    entry: str = ""
    """The launcher's own program, whose interpreter runs the rank; argv[0] where that cannot be read."""
    refusal: str = ""
    """Why nothing is started: the launcher would refuse its arguments, or they contradict the job."""

    @property
    def warm(self) -> bool:
        """Whether a fork of the zygote can take its place."""
        return self.kind is not None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a warm program sees behind its own name."""
        return self.argv[3:] if self.kind == MODULE else self.argv[2:]

    def of(self, local_rank: int) -> Start:
        """Return the start of one rank of the pod, as the launcher would have written its arguments."""
        launch = self.launch
        if launch is None:
            return self
        given = (f"{launch.local_rank}{local_rank}",) if launch.local_rank else ()
        fixed = len(self.argv) - len(launch.arguments)
        words = (*self.argv[:fixed], *given, *launch.arguments)
        if not launch.substitutes:
            return replace(self, argv=words)
        from string import Template  # noqa: PLC0415 - PID 1 keeps its imports few

        first = words[:1]  # torchrun substitutes in the arguments, not in the program
        rest = tuple(Template(word).safe_substitute(local_rank=local_rank) for word in words[1:])
        target = Template(self.target).safe_substitute(local_rank=local_rank)
        return replace(self, argv=first + rest, target=target)


def parse(argv: Sequence[str], environment: Mapping[str, str] | None = None, processes: int = 0) -> Start:
    """Return how to start `argv`. Nothing is looked up: a command that does not exist parses too.

    `environment`: the container's variables, of which torchrun reads those named PET_*. `processes`: ranks of
    the pod, which a launcher's own number must not contradict; 0 for any.
    """
    words = tuple(argv)
    if launcher_of(words):
        return _launched(words, environment or {}, processes)
    call = read_python(words)
    if call is None or not call.kind or not set(call.options) <= _WARM_OPTIONS:
        return Start(words)
    flag = ("-m",) if call.kind == MODULE else ()
    return Start((call.interpreter, *flag, call.target, *call.arguments), call.kind, call.target)


def _launched(words: tuple[str, ...], environment: Mapping[str, str], processes: int) -> Start:
    # argparse is needed for launchers alone.
    from convoy_commands.launch import contradiction, irreplaceable, read_launch  # noqa: PLC0415
    from convoy_commands.options import HelpRequestedError, RefusedError  # noqa: PLC0415

    try:
        launch = read_launch(words, environment)
    except HelpRequestedError:
        return Start(words)
    except RefusedError as error:
        return Start(words, refusal=str(error))
    if launch is None:
        return Start(words)
    if launch.unlisted:  # the launcher itself may know them
        return Start(words, refusal=irreplaceable(launch, processes or 1))
    if processes and (refusal := contradiction(launch, processes)):
        return Start(words, refusal=refusal)
    if launch.bare:
        return Start((launch.script, *launch.arguments), launch=launch)
    python, entry = _python(words[0], environment)
    kind, flag = (MODULE, ("-m",)) if launch.module else (FILE, ())
    return Start((python, *flag, launch.script, *launch.arguments), kind, launch.script, launch, entry)


def _python(word: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the interpreter for a launcher's script, and the program whose interpreter comes before it."""
    if executable := environment.get("PYTHON_EXEC"):  # torchrun reads it too
        return executable, ""
    if read_python((word, "-")):
        return word, ""
    folder = os.path.dirname(word)
    return (os.path.join(folder, "python") if folder else "python"), word


def interpreter(entry: str, path: str) -> str:
    """Return the interpreter in the first lines of an installed Python program; empty where there is none.

    The program itself is looked up on `path`. A long path stands behind `exec` in a shell's line.
    """
    try:
        with open(resolve(entry, path), "rb") as file:
            start = file.read(4096)
    except (CommandError, OSError):
        return ""
    for found in _SHEBANG.finditer(start):
        line = found["words"].decode(errors="replace")
        words: list[str] = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', line)]
        if words and os.path.basename(words[0]) == "env":
            words = words[1:]
        if words and read_python((words[0], "-")):
            return words[0]
    return ""


class CommandError(Exception):
    """The command cannot be run; `exit_code` is a shell's: 127 not found, 126 not executable."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def resolve(name: str, path: str) -> str:
    """The executable behind argv[0]; CommandError says which of the two ways it fails.

    Looked up as execvp does: a name without a slash on `path`, the first match that can be executed.
    """
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder or ".", name) for folder in path.split(os.pathsep)]
    refused = ""
    for candidate in candidates:
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            refused = refused or candidate
        elif os.path.isdir(candidate) and "/" in name:
            refused = candidate
    if refused:
        raise CommandError(f"{refused} is not an executable file{executables.not_executable(refused)}", 126)
    where = "" if "/" in name else f" on PATH={path}"
    raise CommandError(f"{name}: command not found{where}{executables.not_found(name)}", 127)
