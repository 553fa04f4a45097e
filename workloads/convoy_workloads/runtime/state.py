"""What a checkpoint holds: the program's model, optimizer and further objects, and each rank's generators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

from convoy_workloads.runtime.exactness import rng_state, set_rng_state


def drop_unsaved(state: dict[str, Any], saved: Collection[str]) -> None:
    """Takes out of a collected state what need not have been saved: generators of ranks that were not there,
    and the optimizer's state of parameters that had never had a gradient.

    `saved`: names of all entries. Where nothing of an optimizer was saved all of it stays, so that loading
    fails: another optimizer is not to begin quietly without its past.
    """
    for name in [name for name in state if name.startswith("rank.") and name not in saved]:
        del state[name]
    kept = [name for name in saved if name.startswith("optimizer.state.")]
    if not kept:
        return
    moments = state.get("optimizer", {}).get("state", {})
    for name in list(moments):
        if not any(one.startswith(f"optimizer.state.{name}.") for one in kept):
            del moments[name]


class TrainingState:
    """The live objects that are saved and loaded into. Needs torch."""

    def __init__(
        self, rank: int, model: Any = None, optimizer: Any = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """`extra`: further objects with `state_dict` and `load_state_dict`."""
        self._generators = f"rank.{rank}"
        self._model = model
        self._optimizer = optimizer
        self._extra = dict(extra or {})

    def collect(self) -> dict[str, Any]:
        """The values as they are now, to be copied or loaded into; RuntimeError without a model."""
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
        # A namespace: DCP flattens mappings into entries. One of the standard library's, since it is pickled.
        state[self._generators] = SimpleNamespace(value=rng_state())
        return state

    def make_room(self) -> None:
        """Before the first `collect` of what is to be loaded into: cheaper than what that would do."""
        from convoy_workloads.runtime import moments  # noqa: PLC0415

        if self._optimizer is not None:
            moments.make_room(self._optimizer)

    def put_back(self, state: dict[str, Any]) -> None:
        """Gives the objects and the generators what was loaded into a collected state."""
        from torch.distributed.checkpoint.state_dict import (  # noqa: PLC0415
            StateDictOptions,
            set_model_state_dict,
            set_optimizer_state_dict,
        )

        set_model_state_dict(self._model, state["model"])
        if self._optimizer is not None:
            # Parameters without state, see `drop_unsaved`, get it when their first gradient comes.
            options = StateDictOptions(strict=False)
            set_optimizer_state_dict(self._model, self._optimizer, state["optimizer"], options=options)
        for name, value in self._extra.items():
            value.load_state_dict(state["extra"][name])
        own = state.get(self._generators)
        if own is not None:
            set_rng_state(own.value)
