"""The metrics that a training program itself measures. They are checked when the program reports them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_NAMES = 64
"""Maximum number of names that one rank may report. The same limit applies to `spec.metrics` of an Engine."""
MAX_NAME_LENGTH = 63
MAX_PRINTED = 8
"""Maximum number of metrics in one log line. The line also gives the number of metrics that it leaves out."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Measurement:
    """A value and the step at which the program reported it."""

    value: float
    """The value. NaN and infinity are allowed, because a metric may be undefined at some step."""
    step: int


class Metrics:
    """The newest measurement of each metric, in the order in which the program first reported them."""

    def __init__(self) -> None:
        self._newest: dict[str, Measurement] = {}

    def record(self, step: int, values: Mapping[str, Any]) -> bool:
        """Record the values of one report for step `step`. Return True if one of these metrics has no value
        for step `step - 1` or later.

        Raises ValueError or TypeError if a metric is invalid; the message names the metric. In that case no
        value is recorded.
        """
        checked = {
            _checked_name(name): number(f"metrics[{_quoted(name)}]", value) for name, value in values.items()
        }
        if len(self._newest.keys() | checked.keys()) > MAX_NAMES:
            extra = next(name for name in reversed(checked) if name not in self._newest)
            raise ValueError(f"metrics[{extra!r}]: a rank may report at most {MAX_NAMES} names")
        rare = any((before := self._newest.get(name)) is None or step - before.step > 1 for name in checked)
        self._newest.update((name, Measurement(value, step)) for name, value in checked.items())
        return rare

    def message(self) -> dict[str, dict[str, Any]]:
        """Return the metrics in the form of the `progress` message.

        A NaN or infinite `value` becomes null, because JSON lacks both.
        """
        return {
            name: {"value": one.value if math.isfinite(one.value) else None, "step": one.step}
            for name, one in self._newest.items()
        }

    def words(self) -> list[str]:
        """Return one text per metric for a log line."""
        return words({name: one.value for name, one in self._newest.items()})


def words(values: Mapping[str, float | None]) -> list[str]:
    """Return one text per name and value for a log line. None stands for NaN.

    >>> words({"held_out_loss": 1.25, "padding_ratio": None})
    ['held_out_loss 1.25', 'padding_ratio nan']
    """
    shown = [
        f"{name} {'nan' if value is None else format(value, '.6g')}"
        for name, value in list(values.items())[:MAX_PRINTED]
    ]
    more = len(values) - len(shown)
    return [*shown, f"({more} more)"] if more else shown


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not _valid(name):
        raise ValueError(
            f"metrics[{_quoted(name)}]: a name has at most {MAX_NAME_LENGTH} lower-case letters, digits and "
            f"_, and begins with a letter{_near(name)}"
        )
    return name


def _valid(name: str) -> bool:
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def _near(name: Any) -> str:
    """Return a hint with a similar valid name for an invalid name such as `val/loss`; empty if there is
    none.
    """
    near = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") if isinstance(name, str) else ""
    return f"; {near!r} would be valid" if _valid(near) else ""


def number(what: str, value: Any) -> float:
    """Return a number, or the element of an array or tensor with one element, as a float.

    Raises TypeError for anything else. The message begins with `what`, the name of the value.
    """
    try:
        if isinstance(value, (str, bytes)):  # Python 3.9 cannot evaluate `str | bytes`, so use a tuple.
            raise TypeError  # Although "1.5" would convert, a program that reports text has a bug.
        try:
            return float(value)
        except TypeError:
            if not callable(item := getattr(value, "item", None)):
                raise
            # `float` rejects a NumPy array with axes, even if the array has one element.
            return float(item())
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):  # A tensor with more than one element raises RuntimeError.
        raise TypeError(
            f"{what}: {_quoted(value)} is neither a number nor a tensor with one element"
        ) from None


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
