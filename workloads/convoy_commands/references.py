"""References to variables in a command, as the kubelet expands them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_REFERENCE = re.compile(r"\$(?:(?P<escape>\$)|\((?P<name>[^)]*)\))")
_NAMED = re.compile(r"\$\((?P<name>[^)]*)\)")


def expand(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with each `$(NAME)` replaced by the variable's value, as the kubelet does.

    References to undefined variables and any other `$` stay. `$$` becomes `$`, so `$$(NAME)` is not a
    reference. Values are not expanded again.
    """

    def value(found: re.Match[str]) -> str:
        return "$" if found["escape"] else environment.get(found["name"], found[0])

    return tuple(_REFERENCE.sub(value, word) for word in words)


def substitute(value: str, environment: Mapping[str, str]) -> str:
    """Return a variable's value, already expanded by the kubelet, with references to further variables
    replaced.

    Other references and `$$` stay, because the kubelet has already processed the value.
    """
    if "$(" not in value:
        return value
    return _NAMED.sub(lambda found: environment.get(found["name"], found[0]), value)
