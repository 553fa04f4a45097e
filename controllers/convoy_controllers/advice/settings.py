"""Reads the settings that a job gives to its program: parameters of an Engine, variables and arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from convoy_controllers.advice.json_values import objects, words
from convoy_controllers.advice.subject import Container, Role, Subject

_ARGUMENT = re.compile(
    r"(?:^|\s)-{1,2}([A-Za-z][\w.-]*)(?:[= ]([^\s-]\S*))?|(?:^|\s)\+{0,2}([A-Za-z][\w.]*)=(\S*)"
)
"""Matches `--name=value`, `--name value`, `--name` and `name=value`."""
_MAX_TEXT = 100_000
"""Maximum number of characters of a command line that is searched."""
_MAX_DEPTH = 8


class Setting(NamedTuple):
    """A value that a program gets. The name has lower-case words, separated by `_`."""

    path: str
    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """Return the words of the name."""
        return self.name.split("_")


def settings(subject: Subject) -> Iterator[Setting]:
    """Yield the settings of all roles of a job."""
    for role in subject.roles:
        yield from role_settings(role)


def role_settings(role: Role) -> Iterator[Setting]:
    """Yield the settings of a role: the parameters of its Engine, and those of its containers."""
    if role.engine is not None:
        yield from _parameters(role.engine.params, f"{role.engine_path}.params")
    for container in role.containers():
        for one in objects(container.body.get("env")):
            yield Setting(f"{container.path}.env", _plain(str(one.get("name"))), str(one.get("value") or ""))
        for found in _ARGUMENT.finditer(command_line(container)):
            name, value = found[1] or found[3], found[2] or found[4] or ""
            yield Setting(f"{container.path}.command", _plain(name), value)


def command_line(container: Container) -> str:
    """Return the command and the arguments of a container as one text."""
    return " ".join([*words(container.body.get("command")), *words(container.body.get("args"))])[:_MAX_TEXT]


def _parameters(value: Any, path: str, depth: int = 0) -> Iterator[Setting]:
    """Yield the parameters of an Engine, those of nested objects too."""
    if not isinstance(value, Mapping) or depth > _MAX_DEPTH:
        return
    for name, one in value.items():
        yield Setting(f"{path}.{name}", _plain(str(name)), "" if isinstance(one, Mapping) else str(one))
        yield from _parameters(one, f"{path}.{name}", depth + 1)


def _plain(name: str) -> str:
    """Return a name in lower-case words: `maxSteps`, `--max-steps` and `MAX_STEPS` are all `max_steps`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")
