"""How a rank's command line is started: forked from the zygote (warm) or executed (cold).

`python FILE ...` and `python -m MODULE ...` are warm. `torchrun ... FILE ...` means the same to a user, and
Convoy already is what torchrun would be: torchrun's own options are dropped, the script is one rank.
"""
# ruff: noqa: PTH112, PTH113, PTH118, PTH119, PTH120 - paths as execvp sees them

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FILE = "file"
MODULE = "module"

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_TORCHRUN_FLAGS = frozenset(
    {
        "standalone",
        "no-python",
        "run-path",
        "m",
        "module",
        "use-env",
        "rdzv-nonblocking",
        "virtual-local-rank",
        "disable-healthcheck",
    }
)
"""torchrun's options that take no value."""

_REFERENCE = re.compile(r"\$(?:(?P<escape>\$)|\((?P<name>[^)]*)\))")


def expand(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The words with `$(NAME)` replaced by the variable's value, as the kubelet does with a pod's command.

    A reference to an undefined variable and any other `$` stay as they are. `$$` becomes `$`, so `$$(NAME)`
    is no reference. Values are not expanded again.
    """

    def value(found: re.Match[str]) -> str:
        return "$" if found["escape"] else environment.get(found["name"], found[0])

    return tuple(_REFERENCE.sub(value, word) for word in words)


@dataclass(frozen=True)
class Start:
    """What to run. `kind` and `target` are set when it may start warm."""

    argv: tuple[str, ...]
    """The command that would be executed cold; argv[0] is looked up on PATH."""
    kind: str | None = None
    target: str = ""
    """Path of the file, or name of the module."""
    per_node: int | None = None
    """How many processes torchrun was to start here, where a number says so."""

    @property
    def warm(self) -> bool:
        """Whether a fork of the zygote can take its place."""
        return self.kind is not None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a warm program sees behind its own name."""
        return self.argv[3:] if self.kind == MODULE else self.argv[2:]


def parse(argv: Sequence[str]) -> Start:
    """How to start `argv`. Nothing is looked up: a command that does not exist parses too."""
    words = list(argv)
    if not words:
        return Start(())
    name = os.path.basename(words[0])
    if name == "torchrun":
        folder = os.path.dirname(words[0])
        return _torchrun(os.path.join(folder, "python") if folder else "python", words[1:]) or Start(
            tuple(words)
        )
    if not _PYTHON.fullmatch(name):
        return Start(tuple(words))
    rest = words[1:]
    if rest[:1] == ["-u"]:
        rest = rest[1:]
    if rest[:1] == ["-m"] and len(rest) > 1:
        if rest[1] in _TORCHRUN_MODULES:
            return _torchrun(words[0], rest[2:]) or Start(tuple(words))
        return Start((words[0], "-m", *rest[1:]), MODULE, rest[1])
    if rest and not rest[0].startswith("-"):
        return Start((words[0], *rest), FILE, rest[0])
    return Start(tuple(words))


def _torchrun(python: str, words: list[str]) -> Start | None:
    """The rank behind torchrun's arguments; None when there is no script among them."""
    module = no_python = False
    per_node = None
    index = 0
    while index < len(words) and words[index].startswith("-"):
        option, _, value = words[index].lstrip("-").partition("=")
        option = option.replace("_", "-")
        module = module or option in ("m", "module")
        no_python = no_python or option == "no-python"
        alone = option in _TORCHRUN_FLAGS or "=" in words[index]
        if option == "nproc-per-node":
            number = value if alone else "".join(words[index + 1 : index + 2])
            per_node = int(number) if number.isdecimal() else None  # torchrun knows `gpu` and `auto` too
        index += 1 if alone else 2
    rest = words[index:]
    if not rest:
        return None
    if no_python:
        return Start(tuple(rest), per_node=per_node)
    if module:
        return Start((python, "-m", *rest), MODULE, rest[0], per_node)
    return Start((python, *rest), FILE, rest[0], per_node)


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
        raise CommandError(f"{refused} is not an executable file", 126)
    where = "" if "/" in name else f" on PATH={path}"
    raise CommandError(f"{name}: command not found{where}", 127)
