"""Decides how to start a rank's command: as a fork of the zygote (warm) or as a new process (cold).

`python FILE ...` and `python -m MODULE ...` start warm. Convoy replaces a launcher such as torchrun, which
would start one process per rank. For `torchrun ... FILE ...` each rank runs FILE.
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
"""Options of the interpreter that a fork of the zygote supports."""
_SHEBANG = re.compile(rb"^(?:#!|'''exec' )(?P<words>[^\r\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class Start:
    """The way to start a rank's command. `kind` and `target` are set only if the command may start warm."""

    argv: tuple[str, ...]
    """Command line for a cold start. argv[0] is searched on PATH."""
    kind: str | None = None
    target: str = ""
    """Path of the program's file, or name of its module."""
    launch: Launch | None = None
    """Parsed command line of the launcher that Convoy replaces; None if the command calls no launcher."""
    entry: str = ""
    """Path of the launcher's own program. The interpreter in its first line runs the rank. If that line
    cannot be read, argv[0] runs the rank.
    """
    refusal: str = ""
    """Error message if the launcher would refuse its arguments, or if its arguments contradict the job;
    else empty.
    """

    @property
    def warm(self) -> bool:
        """Return True if the command can run in a fork of the zygote."""
        return self.kind is not None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of a warm program. The program's own name is not included."""
        return self.argv[3:] if self.kind == MODULE else self.argv[2:]

    def for_rank(self, local_rank: int) -> Start:
        """Return this start with the arguments that the launcher would give to the rank `local_rank` of the
        pod.
        """
        launch = self.launch
        if launch is None:
            return self
        given = (f"{launch.local_rank}{local_rank}",) if launch.local_rank else ()
        fixed = len(self.argv) - len(launch.arguments)
        words = (*self.argv[:fixed], *given, *launch.arguments)
        if not launch.replaces_local_rank:
            return replace(self, argv=words)
        from string import Template  # noqa: PLC0415 - PID 1 keeps its imports few

        first = words[:1]  # torchrun substitutes only in the arguments, so leave the program unchanged.
        rest = tuple(Template(word).safe_substitute(local_rank=local_rank) for word in words[1:])
        target = Template(self.target).safe_substitute(local_rank=local_rank)
        return replace(self, argv=first + rest, target=target)


def parse(argv: Sequence[str], environment: Mapping[str, str] | None = None, processes: int = 0) -> Start:
    """Return how to start `argv`. The function accesses no files, so it also parses a command that does not
    exist.

    `environment` has the container's variables, because torchrun reads the PET_* variables. `processes` is
    the number of ranks of the pod. A launcher's own number must not contradict it; 0 accepts any number.
    """
    words = tuple(argv)
    if launcher_of(words):
        return _parse_launcher(words, environment or {}, processes)
    call = read_python(words)
    if call is None or not call.kind or not set(call.options) <= _WARM_OPTIONS:
        return Start(words)
    flag = ("-m",) if call.kind == MODULE else ()
    return Start((call.interpreter, *flag, call.target, *call.arguments), call.kind, call.target)


def _parse_launcher(words: tuple[str, ...], environment: Mapping[str, str], processes: int) -> Start:
    # Import these modules only here. They import argparse, which only a launcher's command line needs.
    from convoy_commands.launch import process_count_conflict, read_launch, unknown_option_problem  # noqa: PLC0415
    from convoy_commands.options import HelpRequestedError, RefusedError  # noqa: PLC0415

    try:
        launch = read_launch(words, environment)
    except HelpRequestedError:
        return Start(words)
    except RefusedError as error:
        return Start(words, refusal=str(error))
    if launch is None:
        return Start(words)
    # Convoy does not know these options. If the pod has more than one rank, refuse the command. If it has one
    # rank, `unknown_option_problem` returns an empty text: the launcher itself then runs, because a later
    # release of it may know the options.
    if launch.unlisted:
        return Start(words, refusal=unknown_option_problem(launch, processes or 1))
    if processes and (refusal := process_count_conflict(launch, processes)):
        return Start(words, refusal=refusal)
    if launch.runs_without_python:
        return Start((launch.script, *launch.arguments), launch=launch)
    python, entry = _interpreter_and_entry(words[0], environment)
    kind, flag = (MODULE, ("-m",)) if launch.module else (FILE, ())
    return Start((python, *flag, launch.script, *launch.arguments), kind, launch.script, launch, entry)


def _interpreter_and_entry(word: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the default interpreter for a launcher's script, and the path of the launcher's own program.
    The interpreter in the first line of that program takes precedence over the default.

    The path is empty if the default interpreter must be used: if PYTHON_EXEC names it, or if the command
    itself begins with it.
    """
    if executable := environment.get("PYTHON_EXEC"):  # torchrun also reads this variable.
        return executable, ""
    if read_python((word, "-")):
        return word, ""
    folder = os.path.dirname(word)
    return (os.path.join(folder, "python") if folder else "python"), word


def interpreter(entry: str, path: str) -> str:
    """Return the interpreter in the first lines of an installed Python program; an empty text if they name
    none.

    The program is searched on `path`. If the interpreter's path is long, installers write it behind `exec`
    in a line of shell code, so the function also reads such a line.
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
    """Raised if the command cannot be run. `exit_code` is a shell's exit code: 127 if the command does not
    exist, 126 if it is not executable.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def resolve(name: str, path: str) -> str:
    """Return the path of the executable for argv[0]. Raises CommandError if the file does not exist or is
    not executable.

    The rules are those of execvp: a name without a slash is searched on `path`, and the first executable
    file wins.
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
        raise CommandError(
            f"{refused} is not an executable file{executables.not_executable_advice(refused)}", 126
        )
    where = "" if "/" in name else f" on PATH={path}"
    raise CommandError(f"{name}: command not found{where}{executables.not_found_advice(name)}", 127)
