"""Outcomes of remote calls. A lost node is an ordinary event, so it is a value and no exception."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Value:
    """The call returned this value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """The actor, its node or the object is gone for good. Nobody knows whether the call was executed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The actor does not respond at the moment, but may come back. The call may have been executed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Late:
    """There is no outcome yet; the deadline has passed."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The remote code raised an error. It would raise it again on another node."""

    reason: str


Outcome = Value | Lost | Unavailable | Late | Raised


def outcome(reference: Any, seconds: float) -> Outcome:
    """Return the outcome of a remote call after at most `seconds`."""
    import ray  # noqa: PLC0415 - heavy
    from ray import exceptions as errors  # noqa: PLC0415

    try:
        return Value(ray.get(reference, timeout=max(0.0, seconds)))
    except errors.GetTimeoutError:
        return Late()
    except errors.ActorUnavailableError as error:
        return Unavailable(_first_line(error))
    except errors.RayTaskError as error:
        # A lost object of an argument is reported as an error of the task.
        lost = isinstance(error.cause, errors.RayActorError | errors.ObjectLostError)
        return Lost(_first_line(error.cause)) if lost else Raised(_last_line(error))
    except errors.RayActorError as error:
        # An actor whose constructor raises is reported as an actor that has died.
        return Raised(_last_line(error)) if error.actor_init_failed else Lost(_last_line(error))
    except (
        errors.ObjectLostError,
        errors.NodeDiedError,
        errors.WorkerCrashedError,
        errors.LocalRayletDiedError,
        errors.OutOfMemoryError,
    ) as error:
        return Lost(_first_line(error))
    except errors.RayError as error:
        return Raised(_last_line(error))


def finished(references: Sequence[Any], seconds: float) -> list[Any]:
    """Return the calls that have an outcome after at most `seconds`; all as soon as the first has one."""
    import ray  # noqa: PLC0415

    if not references:
        return []
    ready, _ = ray.wait(list(references), num_returns=1, timeout=max(0.0, seconds), fetch_local=False)
    if ready:
        ready, _ = ray.wait(list(references), num_returns=len(references), timeout=0, fetch_local=False)
    return list(ready)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _last_line(error: BaseException) -> str:
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
