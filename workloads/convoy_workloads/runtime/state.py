"""The state that a checkpoint holds: the program's model, optimizer and further objects, and each rank's
own values.

Most of the state is the same on all ranks and is saved once. But some values may differ between ranks under
the same name, such as the running means of a normalisation layer, the position of a sampler, or a
generator. So each rank also saves its own version of the buffers and further objects. A run with the same
number of ranks gets every bit back. With another number of ranks, all ranks get the lowest rank's version,
as DistributedDataParallel does at each forward pass.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.exactness import rng_state, set_rng_state

if TYPE_CHECKING:
    from convoy_workloads.runtime.state_dicts import StateDicts

SMALL_BYTES = 64 * 1024
"""Maximum size, in bytes, of a tensor of which each rank always saves its own version. Larger tensors are
first compared between the ranks, once.
"""


class TrainingState:
    """The objects of the program whose values are saved and loaded. Torch must be installed."""

    def __init__(
        self,
        rank: int,
        model: Any = None,
        optimizer: Any = None,
        extra: Mapping[str, Any] | None = None,
        world: int = 1,
    ) -> None:
        """Prepare the state of one rank. `extra`: further objects with `state_dict` and `load_state_dict`,
        by name. Raises TypeError if one of them lacks these methods.
        """
        for name, one in (extra or {}).items():
            if not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict")):
                raise TypeError(
                    f"extra[{name!r}]: {type(one).__name__} has no state_dict and load_state_dict; wrap it "
                    "in an object that has them"
                )
        self._rank_key = f"rank.{rank}"
        self._world = world
        self._model = model
        self._optimizer = optimizer
        self._extra = dict(extra or {})
        self._dicts: StateDicts | None = None
        self._allocated = False
        """True if the optimizer's state was allocated for a restore."""
        self._differ: set[str] | None = None
        """Names of the large tensors that differ between ranks; None before `compare` is called."""

    def compare(self, gather: Callable[[Any], list[Any]]) -> None:
        """Find the large tensors, among buffers and further objects, that differ between the ranks.

        All ranks call this before each save; only the first call compares. If a tensor starts to differ
        later, only one rank's version of it is saved.

        `gather` takes this rank's value and returns the values of all ranks.
        """
        if self._differ is not None or self._world == 1:
            return
        mine = {path: _digest(one) for path, one in _large(self._per_rank_values(self._shared()))}
        digests = gather(mine)
        self._differ = {path for path in mine if len({one[path] for one in digests if path in one}) > 1}

    def collect(self) -> dict[str, Any]:
        """Return the current values, without copying tensors: the caller must copy them before the next
        step. Raises RuntimeError if there is no model.
        """
        state = self._shared()
        # DCP would save a mapping as one entry per key, but it pickles a namespace as one entry. To unpickle
        # a namespace, a program needs only the standard library.
        own: dict[str, Any] = {"generators": SimpleNamespace(value=rng_state())}
        if self._world > 1:
            own = {**_filter_leaves(self._per_rank_values(state), "", self._is_saved_per_rank), **own}
        state[self._rank_key] = own
        return state

    def load_target(self) -> dict[str, Any]:
        """Return a state with the same structure as the result of `collect`. A checkpoint can be loaded
        into it.

        The values under this rank's own key are copies. So loading them does not change the values that all
        ranks have in common.
        """
        state = self._shared(allocate=True)
        own = copy.deepcopy(self._per_rank_values(state)) if self._world > 1 else {}
        state[self._rank_key] = {**own, "generators": SimpleNamespace(value=rng_state())}
        return state

    def allocate_optimizer_state(self) -> None:
        """Allocate the optimizer's state, unless it exists. Call this before the first `load_target`: torch
        would otherwise allocate the state there, which takes longer.
        """
        from convoy_workloads.runtime import optimizer_state  # noqa: PLC0415

        if self._optimizer is not None and optimizer_state.allocate_state(self._optimizer):
            self._allocated = True

    def release_optimizer_state(self) -> None:
        """Remove the state that `allocate_optimizer_state` has allocated, because nothing is restored. An
        optimizer gives state only to parameters that get a gradient.
        """
        if self._allocated:
            self._allocated = False
            self._optimizer.state.clear()

    def apply(self, state: dict[str, Any], world: int) -> None:
        """Set the program's objects and the generators to the values in `state`.

        `state`: the result of `load_target`, after a checkpoint was loaded into it. `world`: number of
        ranks that saved the values.
        """
        from torch.distributed.checkpoint.state_dict import (  # noqa: PLC0415
            StateDictOptions,
            set_model_state_dict,
            set_optimizer_state_dict,
        )

        own = state.get(self._rank_key, {})
        if world == self._world:
            _overlay(state["model"], own.get("buffers", {}))
            _overlay(state.get("extra", {}), own.get("extra", {}))
        set_model_state_dict(self._model, _without_self_copies(self._model, state["model"]))
        if self._optimizer is not None:
            # Accept missing state: a parameter that had no gradient (see `drop_unsaved` in saved_entries.py)
            # gets its state at its first gradient.
            options = StateDictOptions(strict=False)
            with _all_trainable(self._optimizer):
                set_optimizer_state_dict(self._model, self._optimizer, state["optimizer"], options=options)
        for name, value in self._extra.items():
            value.load_state_dict(state["extra"][name])
        if "generators" in own:
            set_rng_state(own["generators"].value)

    def _is_saved_per_rank(self, path: str, value: Any) -> bool:
        """Return True if each rank saves its own version of this value."""
        return not _is_large(value) or path in (self._differ or ())

    def _shared(self, *, allocate: bool = False) -> dict[str, Any]:
        from convoy_workloads.runtime.state_dicts import StateDicts  # noqa: PLC0415

        if self._model is None:
            raise RuntimeError("job.restore(model=...) comes before the first checkpoint")
        if self._dicts is None:
            self._dicts = StateDicts(self._model, self._optimizer)
        state = self._dicts.collect(allocate=allocate)
        if self._extra:
            state["extra"] = {name: value.state_dict() for name, value in self._extra.items()}
        return state

    def _per_rank_values(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that may differ between ranks: the buffers and further objects."""
        parameters = {at for one in self._model.parameters() for at in _storage(one)}
        buffers = {
            name: one
            for name, one in state["model"].items()
            if not (hasattr(one, "data_ptr") and parameters.intersection(_storage(one)))
        }
        return {"buffers": buffers, "extra": state.get("extra", {})}


@contextmanager
def _all_trainable(optimizer: Any) -> Iterator[None]:
    """Treat the frozen parameters as trainable, because torch drops the saved state of frozen ones."""
    frozen = [
        one
        for own in (optimizer if isinstance(optimizer, (list, tuple)) else [optimizer])
        for group in own.param_groups
        for one in group["params"]
        if not one.requires_grad and (one.is_floating_point() or one.is_complex())
    ]
    try:
        for one in frozen:
            one.requires_grad_(True)
        yield
    finally:
        for one in frozen:
            one.requires_grad_(False)


def _without_self_copies(model: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each value that lies in the memory of one of the model's tensors by this tensor itself. A load
    into the model then does not copy it.
    """
    own = {_place(one): one for one in (*model.parameters(), *model.buffers())}
    own.pop(None, None)
    return {name: own.get(_place(value), value) for name, value in values.items()}


def _place(value: Any) -> Any:
    """Return a key that is equal for two tensors with the same type, shape and memory. Return None for
    values whose memory cannot be compared.
    """
    import torch  # noqa: PLC0415

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or not value.numel():
        return None
    return value.device, value.dtype, value.data_ptr(), tuple(value.shape), tuple(value.stride())


def _storage(tensor: Any) -> Iterator[int]:
    """Yield the memory address of a tensor; for a DTensor, of its local part. Yield nothing for an empty
    tensor.
    """
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
    """Return the tree with only the leaves that `wanted` accepts."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            if inner := _filter_leaves(value, f"{path}.{key}", wanted):
                found[key] = inner
        elif wanted(f"{path}.{key}", value):
            found[key] = value
    return found


def _overlay(tree: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Replace leaves of `tree` by the leaves of `own` with the same path."""
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
