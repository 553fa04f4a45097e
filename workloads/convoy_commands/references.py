"""Expands references to variables in a command, as the kubelet does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_REFERENCE = re.compile(r"\$(?:(?P<escape>\$)|\((?P<name>[^)]*)\))")
_NAMED = re.compile(r"\$\((?P<name>[^)]*)\)")


def expand(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with each `$(NAME)` replaced by the value of the variable NAME, as the kubelet does.

    References to undefined variables and any other `$` stay unchanged. `$$` becomes `$`, so `$$(NAME)` is
    not a reference. A reference inside a variable's value is not expanded.
    """

    def value(found: re.Match[str]) -> str:
        return "$" if found["escape"] else environment.get(found["name"], found[0])

    return tuple(_REFERENCE.sub(value, word) for word in words)


def substitute(value: str, environment: Mapping[str, str]) -> str:
    """Return a variable's value with its references to the variables of `environment` replaced.

    The value comes from a process environment, so the kubelet has already expanded the references that it
    knows and every `$$`. Therefore other references and any remaining `$$` stay unchanged.
    """
    if "$(" not in value:
        return value
    return _NAMED.sub(lambda found: environment.get(found["name"], found[0]), value)
