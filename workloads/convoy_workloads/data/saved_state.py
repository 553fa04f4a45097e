"""The state of a loader as text in a checkpoint, and the checks of a state that is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from convoy_workloads.runtime.errors import DataError


def state_text(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a loader's `state_dict`."""
    return {"state": json.dumps(state)}


def state_of(saved: Mapping[str, Any], loader: str, listed: str) -> dict[str, Any]:
    """Return the state that `state_text` has written. `listed`: a field that only this loader's state has,
    with a list.

    Raises DataError for anything else.
    """
    try:
        state: dict[str, Any] = json.loads(saved["state"])
        if not isinstance(state[listed], list):
            raise TypeError(listed)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"the state is not one of {loader}: {error!r}") from error
    return state


def check_count(state: Mapping[str, Any], count: int) -> None:
    """Raise DataError if the state is of a dataset with another number of samples."""
    if state["count"] != count:
        raise DataError(
            f"the checkpoint is of a dataset with {state['count']} samples, but this one has {count}"
        )


def check_order(state: Mapping[str, Any], seed: int, shuffle: bool) -> None:
    """Raise DataError if the state is in the middle of an epoch with another order of the samples."""
    if "alignment" in state and state["order"] != [seed, shuffle]:
        before_seed, before_shuffle = state["order"]
        raise DataError(
            f"the checkpoint is in the middle of an epoch with seed={before_seed} and "
            f"shuffle={before_shuffle}, but this loader has seed={seed} and shuffle={shuffle}"
        )
