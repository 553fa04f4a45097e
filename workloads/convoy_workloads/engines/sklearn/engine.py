"""The engine that serves a model of scikit-learn. The front is `convoy_workloads.serving`; this module is the
iteration: the requests that wait are computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from convoy_workloads.engines.sklearn import model_file
from convoy_workloads.engines.sklearn.params import Params
from convoy_workloads.engines.sklearn.predictor import OutputTooLarge, Predictor, joined, samples
from convoy_workloads.engines.sklearn.signature import Signature, signature
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.serving.datatypes import Array
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.kserve_tensors import parse
from convoy_workloads.serving.protocol import (
    Inference,
    ModelCard,
    ModelError,
    Prediction,
    SelfTestFailed,
    TensorSpec,
    Usage,
)
from convoy_workloads.serving.rank import run

TOLERANCE = 1e-5
"""Maximum relative difference between a row that is computed alone and beside others."""


class SklearnEngine:
    """The engine of one replica."""

    def __init__(self, params: Params, path: Path | None) -> None:
        """`path`: folder of the model; None to serve the engine's own model."""
        self._params = params
        self._path = path
        self._predictor: Predictor | None = None
        """The loaded model; None before the first load."""
        self._sample: Mapping[str, Array] = {}
        self._batch: dict[int, Inference] = {}
        self._rows = 0

    def load(self, renew: Callable[[], None]) -> ModelCard:
        """Load the model and find its inputs and outputs. Raises ModelError if the model cannot be used."""
        loaded = model_file.load(self._path, self._params.trusted)
        renew()
        threadpool_limits(self._params.threads)
        _set_threads(loaded.estimator, self._params.threads)
        form = signature(loaded.estimator, self._params.inputs)
        self._predictor, self._sample = _predictor(loaded, form)
        outputs = self._predictor.outputs
        facts = {"inputs": _names(form.inputs), "outputs": _names(outputs), **loaded.facts}
        return ModelCard(self._params.name, 0, loaded.source, facts, form.inputs, outputs)

    def self_test(self) -> None:
        """Compute rows alone and beside others. Raises SelfTestFailed if the results differ."""
        if not self._params.batching:
            return
        predictor, sample = self._loaded, self._sample
        floats = [one.name for one in predictor.outputs if one.datatype.startswith("FP")]
        # At the boundary between two labels, rounding decides. So numbers are compared if there are any.
        names = floats or [one.name for one in predictor.outputs]
        rows = len(next(iter(sample.values())))
        together = predictor.compute(sample, names)
        for row in range(rows):
            alone = predictor.compute({name: one[row : row + 1] for name, one in sample.items()}, names)
            for name in names:
                if not _equal(alone[name], together[name][row : row + 1]):
                    raise SelfTestFailed(
                        f"the output {name} of a row is different beside other rows: set params.batching to "
                        "false"
                    )

    def admit(self, inference: Inference) -> bool:
        """Add an inference to the next batch. Return False if the batch is full."""
        most = self._params.max_rows if self._params.batching else 1
        if self._batch and self._rows + inference.rows > most:
            return False
        self._batch[inference.id] = inference
        self._rows += inference.rows
        return True

    def step(self) -> list[Prediction]:
        """Compute the batch. Return a result for each of its inferences."""
        batch = list(self._batch.values())
        try:
            return self._compute(batch)
        except Exception as error:  # The model may raise any error.
            if len(batch) == 1:
                return [Prediction(batch[0].id, error=_refusal(error))]
        # One of the inferences is to blame. The others must not fail with it.
        found = []
        for one in batch:
            try:
                found += self._compute([one])
            except Exception as error:  # The model may raise any error.
                found.append(Prediction(one.id, error=_refusal(error)))
        return found

    def cancel(self, sequence: int) -> None:
        """Remove an inference from the batch."""
        removed = self._batch.pop(sequence, None)
        if removed is not None:
            self._rows -= removed.rows

    def idle(self) -> None:
        """Do nothing: there are no other ranks."""

    def usage(self) -> Usage:
        """Return the use of the batch."""
        return Usage(len(self._batch))

    def close(self) -> None:
        """Do nothing: the model needs no end."""

    def follow(self, heartbeat: HeartbeatWriter) -> None:
        """Do nothing: a replica has one rank."""

    def _compute(self, batch: Sequence[Inference]) -> list[Prediction]:
        """Compute each output for the inferences that want it."""
        results: dict[int, dict[str, Array]] = {one.id: {} for one in batch}
        for names in dict.fromkeys(one.outputs for one in batch):
            those = [one for one in batch if one.outputs == names]
            computed = self._loaded.compute(joined([one.inputs for one in those]), names)
            at = 0
            for one in those:
                results[one.id] = {name: computed[name][at : at + one.rows] for name in names}
                at += one.rows
        return [Prediction(one.id, results[one.id]) for one in batch]

    @property
    def _loaded(self) -> Predictor:
        assert self._predictor is not None  # noqa: S101 - the front loads first
        return self._predictor


def _predictor(loaded: model_file.Loaded, form: Signature) -> tuple[Predictor, Mapping[str, Array]]:
    """Return the model with its outputs, and inputs that it accepts. Raises ModelError if there are none."""
    candidates: list[Mapping[str, Array]] = [*samples(form)]
    if loaded.sample is not None:
        card = ModelCard("", 0, "", inputs=form.inputs, outputs=(TensorSpec("predict", "FP64", (-1,)),))
        try:
            candidates = [parse(loaded.sample, {}, card).inputs]
        except RequestError as error:
            raise ModelError(f"{model_file.SAMPLE}: {error.message}") from error
    refusal: Exception = ValueError("no sample")
    for sample in candidates:
        try:
            predictor = Predictor(loaded.estimator, form, sample)
        except Exception as error:  # The model may raise any error.
            refusal = error
            continue
        if not predictor.outputs:
            raise ModelError(f"the model {type(loaded.estimator).__name__} neither predicts nor transforms")
        return predictor, sample
    raise ModelError(
        f"the model refuses the sample: {type(refusal).__name__}: {refusal}. Put a request that it accepts "
        f"into its folder as {model_file.SAMPLE}, or correct params.inputs"
    ) from refusal


def _refusal(error: Exception) -> RequestError:
    if isinstance(error, OutputTooLarge):
        return RequestError(400, f"inputs: {error}", "inputs", "invalid_value")
    why = f"the model refuses them: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return RequestError(400, f"inputs: {why}", "inputs", "invalid_value")


def _equal(one: Array, other: Array) -> bool:
    if one.dtype.kind == "f":
        return bool(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
    return bool(np.array_equal(one, other))


def _names(specs: Sequence[TensorSpec]) -> list[str]:
    return [one.name for one in specs]


def _set_threads(estimator: Any, threads: int) -> None:
    """Set the number of threads that the model may start, where it has such a parameter."""
    if not hasattr(estimator, "get_params"):
        return
    wanted = [name for name in estimator.get_params() if name.rpartition("__")[2] == "n_jobs"]
    estimator.set_params(**dict.fromkeys(wanted, threads))
    for inner in (getattr(estimator, "best_estimator_", None), *getattr(estimator, "estimators_", ())):
        _set_threads(inner, threads)


def make(params: Params, path: Path | None, group: Group) -> SklearnEngine:
    """Return the engine of a replica."""
    return SklearnEngine(params, path)


def limits(params: Params) -> Limits:
    """Return the limits of the front."""
    return Limits(params.queue, params.max_body_bytes, params.request_seconds)


def main() -> None:
    """Run one replica."""
    run("sklearn", Params, make, limits)


if __name__ == "__main__":
    main()
