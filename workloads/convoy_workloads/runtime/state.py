"""What a checkpoint holds: the program's model, optimizer and further objects, and what is each rank's own.

Ranks share most of a state, and it is saved once. But under one name they may have different values: the
running means of a normalisation layer, a sampler's place, a generator. So each rank's own version of buffers
and further objects is saved beside the shared one, and a run of as many ranks gets every bit of them back.
With another number of ranks all take the lowest rank's, as DistributedDataParallel does at each forward pass.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from convoy_workloads.runtime.exactness import rng_state, set_rng_state

SMALL_BYTES = 64 * 1024
"""Tensors up to this size are each rank's own without being asked about. Larger ones are compared, once."""


def drop_unsaved(state: dict[str, Any], saved: Collection[str]) -> None:
    """Takes out of a collected state what need not have been saved: what is a rank's own and was not there,
    and the optimizer's state of parameters that had never had a gradient.

    `saved`: names of all entries. Where nothing of an optimizer was saved all of it stays, so that loading
    fails: another optimizer is not to begin quietly without its past.
    """
    for name in [name for name in state if name.startswith("rank.")]:
        if not _prune(state[name], name, saved):
            del state[name]
    kept = [name for name in saved if name.startswith("optimizer.state.")]
    if not kept:
        return
    moments = state.get("optimizer", {}).get("state", {})
    for name in list(moments):
        if not any(one.startswith(f"optimizer.state.{name}.") for one in kept):
            del moments[name]


def _prune(tree: dict[str, Any], path: str, saved: Collection[str]) -> bool:
    """Leaves what was saved. Whether anything was."""
    for key in list(tree):
        name = f"{path}.{key}"
        if isinstance(tree[key], dict) and tree[key]:
            kept = _prune(tree[key], name, saved)
        else:
            kept = name in saved or any(one.startswith(f"{name}.") for one in saved)
        if not kept:
            del tree[key]
    return bool(tree)


class TrainingState:
    """The live objects that are saved and loaded into. Needs torch."""

    def __init__(
        self,
        rank: int,
        model: Any = None,
        optimizer: Any = None,
        extra: Mapping[str, Any] | None = None,
        world: int = 1,
    ) -> None:
        """`extra`: further objects with `state_dict` and `load_state_dict`."""
        self._rank_key = f"rank.{rank}"
        self._world = world
        self._model = model
        self._optimizer = optimizer
        self._extra = dict(extra or {})
        self._differ: set[str] | None = None
        """Large tensors of which the ranks have different ones, by path; None before `compare`."""

    def compare(self, gather: Callable[[Any], list[Any]]) -> None:
        """Finds out which large buffers, and large tensors of further objects, the ranks do not share. All
        ranks call it before their first save; again it does nothing. What differs only later is taken from
        one rank.

        `gather`: of a value, every rank's.
        """
        if self._differ is not None or self._world == 1:
            return
        mine = {path: _digest(one) for path, one in _large(self._per_rank_values(self._shared()))}
        digests = gather(mine)
        self._differ = {path for path in mine if len({one[path] for one in digests if path in one}) > 1}

    def collect(self) -> dict[str, Any]:
        """The values as they are now, to be copied; RuntimeError without a model."""
        state = self._shared()
        # A namespace: DCP flattens mappings into entries. One of the standard library's, since it is pickled.
        own: dict[str, Any] = {"generators": SimpleNamespace(value=rng_state())}
        if self._world > 1:
            own = {**_filter_leaves(self._per_rank_values(state), "", self._is_saved_per_rank), **own}
        state[self._rank_key] = own
        return state

    def load_target(self) -> dict[str, Any]:
        """As `collect`, to be loaded into: what is this rank's own lies apart from the shared values."""
        state = self._shared()
        own = copy.deepcopy(self._per_rank_values(state)) if self._world > 1 else {}
        state[self._rank_key] = {**own, "generators": SimpleNamespace(value=rng_state())}
        return state

    def allocate_optimizer_state(self) -> None:
        """Before the first `room`: cheaper than what that would do."""
        from convoy_workloads.runtime import optimizer_state  # noqa: PLC0415

        if self._optimizer is not None:
            optimizer_state.allocate_state(self._optimizer)

    def apply(self, state: dict[str, Any], world: int) -> None:
        """Gives the objects and the generators what was loaded into `room`; so many ranks had saved it."""
        from torch.distributed.checkpoint.state_dict import (  # noqa: PLC0415
            StateDictOptions,
            set_model_state_dict,
            set_optimizer_state_dict,
        )

        own = state.get(self._rank_key, {})
        if world == self._world:
            _overlay(state["model"], own.get("buffers", {}))
            _overlay(state.get("extra", {}), own.get("extra", {}))
        set_model_state_dict(self._model, state["model"])
        if self._optimizer is not None:
            # Parameters without state, see `drop_unsaved`, get it when their first gradient comes.
            options = StateDictOptions(strict=False)
            set_optimizer_state_dict(self._model, self._optimizer, state["optimizer"], options=options)
        for name, value in self._extra.items():
            value.load_state_dict(state["extra"][name])
        if "generators" in own:
            set_rng_state(own["generators"].value)

    def _is_saved_per_rank(self, path: str, value: Any) -> bool:
        """Whether a rank's own version of it is saved."""
        return not _is_large(value) or path in (self._differ or ())

    def _shared(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import (  # noqa: PLC0415
            get_model_state_dict,
            get_optimizer_state_dict,
        )

        if self._model is None:
            raise RuntimeError("job.restore(model=...) comes before the first checkpoint")
        state: dict[str, Any] = {"model": get_model_state_dict(self._model)}
        if self._optimizer is not None:
            state["optimizer"] = get_optimizer_state_dict(self._model, self._optimizer)
        if self._extra:
            state["extra"] = {name: value.state_dict() for name, value in self._extra.items()}
        return state

    def _per_rank_values(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """What ranks may have different values of."""
        parameters = {at for one in self._model.parameters() for at in _storage(one)}
        buffers = {
            name: one
            for name, one in state["model"].items()
            if not (hasattr(one, "data_ptr") and parameters.intersection(_storage(one)))
        }
        return {"buffers": buffers, "extra": state.get("extra", {})}


def _storage(tensor: Any) -> Iterator[int]:
    """Where a tensor lies; a DTensor by its local part."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if local.numel():
        yield local.data_ptr()


def _is_large(value: Any) -> bool:
    return hasattr(value, "numel") and value.numel() * value.element_size() > SMALL_BYTES


def _large(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _large(value, f"{path}.{key}")
        elif _is_large(value):
            yield f"{path}.{key}", value


def _filter_leaves(tree: Mapping[str, Any], path: str, wanted: Callable[[str, Any], bool]) -> dict[str, Any]:
    """The tree with the leaves that are wanted."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            if inner := _filter_leaves(value, f"{path}.{key}", wanted):
                found[key] = inner
        elif wanted(f"{path}.{key}", value):
            found[key] = value
    return found


def _overlay(tree: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Puts the leaves of `own` in the places of those of `tree`."""
    for key, value in own.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            _overlay(tree[key], value)
        else:
            tree[key] = value


def _digest(tensor: Any) -> bytes:
    import torch  # noqa: PLC0415

    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    flat = local.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(memoryview(flat.numpy()), digest_size=16).digest()
