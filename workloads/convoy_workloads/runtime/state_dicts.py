"""The state dicts of a model and its optimizer, under the canonical names of torch.distributed.checkpoint.

Torch examines every module for each state dict, which takes several milliseconds per hundred parameters. The
names change only if the program changes its model. So this module remembers the names and reads only the
values at each save, as long as the model and the optimizer still have the same parameters.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.distributed.checkpoint import state_dict as dcp
from torch.distributed.fsdp import FullyShardedDataParallel

_WRAPPERS = {"module", "_orig_mod", "_checkpoint_wrapped_module"}
"""Names of the modules inside DistributedDataParallel, a compiled module, and a checkpoint wrapper."""


@dataclass(frozen=True)
class _Names:
    """The canonical names of one model and its optimizer, and the parameters for which they hold."""

    parameters: tuple[tuple[str, torch.Tensor], ...]
    """The model's parameters by torch's own names."""
    members: tuple[tuple[torch.Tensor, ...], ...]
    """The parameters in each group of the optimizer."""
    model: Mapping[str, str]
    """The names of the model's values in `model.state_dict()`, by canonical name and in torch's order."""
    optimizer: tuple[tuple[str, ...], ...]
    """Canonical names of the parameters in each group of the optimizer."""


class StateDicts:
    """Reads the state dicts of one model and one optimizer. The values are the program's own tensors."""

    def __init__(self, model: Any, optimizer: Any = None) -> None:
        self._model = model
        self._optimizer = optimizer
        self._names: _Names | None = None

    def collect(self, *, allocate: bool = False) -> dict[str, Any]:
        """Return the state dicts as `model` and `optimizer`; only `model` if there is no optimizer.

        With `allocate`, let torch allocate the state of an optimizer that has none. Torch takes a step for
        this, which changes the next steps. So use `allocate` only before a load.
        """
        if isinstance(self._optimizer, (list, tuple)):
            return self._of_several()
        if allocate and self._optimizer is not None and not self._optimizer.state:
            return self._by_torch(allocate=True)
        names = self._names
        if names is None or not self._hold(names):
            return self._by_torch()
        raw = self._model.state_dict()
        if raw.keys() != set(names.model.values()):
            return self._by_torch()
        state: dict[str, Any] = {"model": {name: raw[key] for name, key in names.model.items()}}
        if self._optimizer is not None:
            state["optimizer"] = self._optimizer_state(names)
        return state

    def _of_several(self) -> dict[str, Any]:
        """Let torch collect the state of a model with several optimizers."""
        model, optimizer = dcp.get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def _optimizer_state(self, names: _Names) -> dict[str, Any]:
        raw = self._optimizer.state_dict()
        by_number = {
            number: name
            for group, known in zip(raw["param_groups"], names.optimizer)  # noqa: B905 - Python 3.9
            for number, name in zip(group["params"], known)  # noqa: B905
        }
        return {
            "state": {by_number[number]: value for number, value in _filled(raw["state"]).items()},
            "param_groups": [
                {**group, "params": list(known)}
                for group, known in zip(raw["param_groups"], names.optimizer)  # noqa: B905
            ],
        }

    def _by_torch(self, *, allocate: bool = False) -> dict[str, Any]:
        """Let torch collect the state, and remember the names if they suffice for the next time."""
        self._names = None
        if self._optimizer is None:
            state: dict[str, Any] = {"model": dcp.get_model_state_dict(self._model)}
        else:
            may_step = allocate or _has_flat_parameters(self._model)
            with nullcontext() if may_step else _without_allocation(self._optimizer):
                # One call for both, because torch examines the whole model in each call.
                model, optimizer = dcp.get_state_dict(self._model, self._optimizer)
            state = {
                "model": model,
                "optimizer": {**optimizer, "state": _filled(cast("Any", optimizer["state"]))},
            }
        self._names = self._names_of(state)
        return state

    def _hold(self, names: _Names) -> bool:
        """Return True if the model and the optimizer have the same parameters as when the names were read."""
        own, members = _parameters(self._model), _members(self._optimizer)
        return (
            [name for name, _ in own] == [name for name, _ in names.parameters]
            and _same_objects([one for _, one in own], [one for _, one in names.parameters])
            and len(members) == len(names.members)
            and all(map(_same_objects, members, names.members))
        )

    def _names_of(self, state: Mapping[str, Any]) -> _Names | None:
        """Return the names in a state that torch has collected. Return None if a later state could differ
        from `model.state_dict()` in more than its names, as with FSDP's first version.
        """
        if _has_flat_parameters(self._model):
            return None
        raw, found = self._model.state_dict(), state["model"]
        by_short = {_short(key): key for key in raw}
        keys = {name: by_short.get(_short(name)) for name in found}
        matched = {name: key for name, key in keys.items() if key and _same(raw[key], found[name])}
        if not len(raw) == len(found) == len(set(matched.values())):
            return None
        groups = state["optimizer"]["param_groups"] if self._optimizer is not None else []
        return _Names(
            _parameters(self._model),
            _members(self._optimizer),
            matched,
            tuple(tuple(one["params"]) for one in groups),
        )


@contextmanager
def _without_allocation(optimizer: Any) -> Iterator[None]:
    """Keep torch from allocating the state of an optimizer that has none, because this takes a step
    (pytorch#164929). Torch allocates nothing if any parameter has an entry, even an empty one.
    """
    first = next((one for group in optimizer.param_groups for one in group["params"]), None)
    if optimizer.state or first is None:
        yield
        return
    optimizer.state[first] = {}
    try:
        yield
    finally:
        optimizer.state.pop(first, None)


def _filled(state: Any) -> dict[Any, Any]:
    """Return an optimizer's state without empty entries."""
    return {key: value for key, value in state.items() if not isinstance(value, dict) or value}


def _has_flat_parameters(model: Any) -> bool:
    """Return True if a part of the model uses FSDP's first version, whose state only torch can collect."""
    return any(isinstance(one, FullyShardedDataParallel) for one in model.modules())


def _short(name: str) -> str:
    """Return a name without the parts that only a wrapper of a module adds."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _parameters(model: Any) -> tuple[tuple[str, torch.Tensor], ...]:
    return tuple(model.named_parameters(remove_duplicate=False))


def _members(optimizer: Any) -> tuple[tuple[torch.Tensor, ...], ...]:
    groups = [] if optimizer is None else optimizer.param_groups
    return tuple(tuple(group["params"]) for group in groups)


def _same_objects(ones: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(ones) == len(others) and all(map(operator.is_, ones, others))


def _same(one: Any, other: Any) -> bool:
    """Return True if two values are one tensor, or if neither is a tensor."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return not isinstance(one, torch.Tensor) and not isinstance(other, torch.Tensor)
    own, two = getattr(one, "_local_tensor", one), getattr(other, "_local_tensor", other)
    return own.data_ptr() == two.data_ptr() and one.shape == other.shape and one.dtype == other.dtype
