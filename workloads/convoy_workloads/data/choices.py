"""Checks of the values of options. They return the message about a wrong value, with the option's name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from operator import index
from typing import Any, get_args


def unknown_choice(name: str, value: Any, choices: Any) -> str | None:
    """Return the message about a value that is not one of `choices`, a Literal; None if it is one."""
    known = get_args(choices)
    return None if value in known else f"{name}: {value!r} is not one of {', '.join(known)}"


def no_integer(name: str, value: Any) -> str | None:
    """Return the message about a value that is not a whole number; None for an integer, also of numpy."""
    try:
        index(value)
    except TypeError:
        return f"{name}: {value!r} is not a whole number"
    return f"{name}: {value!r} is not a whole number" if isinstance(value, bool) else None


def no_number(name: str, value: Any) -> str | None:
    """Return the message about a value that is not a finite number; None if it is one."""
    if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
        return None
    return f"{name}: {value!r} is not a finite number"


def raise_first(problems: Iterable[str | None], error: type[Exception]) -> None:
    """Raise an error with the first message, if there is one."""
    for problem in problems:
        if problem:
            raise error(problem)
