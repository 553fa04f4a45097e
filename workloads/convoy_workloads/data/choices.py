"""The check of options whose values have names."""

from __future__ import annotations

from typing import Any, get_args


def unknown_choice(name: str, value: Any, choices: Any) -> str | None:
    """Return the message about a value that is not one of `choices`, a Literal; None if it is one."""
    known = get_args(choices)
    return None if value in known else f"{name}: {value!r} is not one of {', '.join(known)}"
