"""Finds launchers that a command starts indirectly: in a shell script, or through a wrapper program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from convoy_commands.launchers import launcher_of
from convoy_commands.python import MODULE, read_python
from convoy_controllers.launching.shell import commands, script_of

ACCELERATE = "accelerate"
MPIRUN = "mpirun"
_MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "horovodrun"})
_ACCELERATE_MODULES = frozenset({"accelerate.commands.launch"})
_WRAPPERS = frozenset(
    {"env", "exec", "command", "nice", "nohup", "time", "timeout", "stdbuf", "setsid", "ionice", "chrt"}
    | {"numactl", "taskset", "tini", "dumb-init", "catchsegv", "sudo", "gosu", "su-exec", "unbuffer"}
    | {"nsys", "ncu", "strace", "py-spy", "xvfb-run"}
)
"""Programs that take their own options first and then run the rest of the line as a command."""
_RUNNERS = frozenset(
    {"poetry", "pipenv", "uv", "pdm", "hatch", "rye", "pixi", "conda", "mamba", "micromamba"}
)
"""Programs that run the command behind the word `run`."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OPERAND = re.compile(r"[\d.]+[smhdx]?|0x[0-9a-f]+|profile|record|run", re.IGNORECASE)
"""Operands that a wrapper reads itself: a duration, a mask or a subcommand."""
MAX_DEPTH = 4
"""Maximum number of nested shells to parse."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a launcher inside the container's command."""

    launcher: str
    """Name of the launcher: `torchrun`, `deepspeed`, `accelerate` or `mpirun`."""
    words: tuple[str, ...]
    """The words of the call, from the launcher's name on."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that are assigned in front of the launcher, such as `NAME=value torchrun`."""


def calls(words: Sequence[str], depth: int = MAX_DEPTH) -> Iterator[Call]:
    """Yield the launchers that the command starts with certainty, in the order of their calls."""
    variables, rest = _unwrapped(words)
    script = script_of(rest)
    if script is not None and depth:
        for inner in commands(script):
            yield from calls(inner, depth - 1)
    elif launcher := _launcher(rest):
        yield Call(launcher, tuple(rest), variables)


def _launcher(words: Sequence[str]) -> str:
    """Return the name of the launcher that the words call; empty for any other program."""
    if not words:
        return ""
    if found := launcher_of(words):
        return found[0]
    name = words[0].rpartition("/")[2]
    if name in _MPI:
        return MPIRUN
    call = read_python(words)
    module = call.target if call and call.kind == MODULE else ""
    launches = name == "accelerate" and words[1:2] == ("launch",)
    if launches or name == "accelerate-launch" or module in _ACCELERATE_MODULES:
        return ACCELERATE
    return ""


def _unwrapped(words: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables assigned in front of the command, and the command without assignments and
    wrappers.
    """
    rest, variables = tuple(words), dict[str, str]()
    while rest:
        name = rest[0].rpartition("/")[2]
        if _ASSIGNMENT.match(rest[0]):
            key, _, value = rest[0].partition("=")
            variables[key] = value
            rest = rest[1:]
        elif name in _WRAPPERS or (name in _RUNNERS and "run" in rest[1:3]):
            rest = _wrapped_command(rest[1:])
        elif rest[0] == "--":
            rest = rest[1:]
        else:
            break
    return variables, rest


def _wrapped_command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that a wrapper runs: the words behind the wrapper's options, their values and its
    operands.
    """
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return words[index + 1 :]
        if word.startswith("-") and len(word) > 1:
            following = words[index + 1 :]
            # The next word is taken as the option's value, unless the option contains its value or the next
            # word is a program.
            alone = "=" in word or (len(word) > 2 and word[1] != "-")
            index += 1 if alone or not following or _is_program(following) else 2
        elif _OPERAND.fullmatch(word):
            index += 1
        else:
            return words[index:]
    return ()


def _is_program(words: tuple[str, ...]) -> bool:
    name = words[0].rpartition("/")[2]
    wraps = name in _WRAPPERS or name in _RUNNERS or _ASSIGNMENT.match(name) is not None
    known = wraps or script_of(words) is not None or read_python(words) is not None
    return known or bool(_launcher(words)) or words[0].startswith("-")
