"""The computation of a loaded model: tables from input tensors, and output tensors from its methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from convoy_workloads.engines.sklearn.signature import Signature
from convoy_workloads.serving.datatypes import BYTES, DTYPES, Array, datatype_of
from convoy_workloads.serving.protocol import TensorSpec

METHODS = ("predict", "predict_proba", "decision_function", "transform")
"""Methods of models that are outputs. The first that a model has is its default output."""
MAX_VALUES = 1 << 24
"""Maximum number of values of an output."""


class OutputTooLarge(ValueError):
    """Raised if an output has too many values."""


class Predictor:
    """A loaded model with its inputs and outputs."""

    def __init__(self, estimator: Any, form: Signature, sample: Mapping[str, Array]) -> None:
        """`sample`: input tensors that the model accepts. They show the form of its outputs."""
        self.signature = form
        self._estimator = estimator
        self._methods = [name for name in METHODS if callable(getattr(estimator, name, None))]
        self.outputs: tuple[TensorSpec, ...] = ()
        """The outputs of the model."""
        self._method_of: dict[str, str] = {}
        self._find_outputs(sample)

    def compute(self, inputs: Mapping[str, Array], outputs: Iterable[str]) -> dict[str, Array]:
        """Return the outputs with these names for the rows of the inputs."""
        table = self._table(inputs)
        wanted = set(outputs)
        found: dict[str, Array] = {}
        for method in dict.fromkeys(self._method_of[name] for name in sorted(wanted)):
            found.update(_tensors(method, getattr(self._estimator, method)(table)))
        return {name: array for name, array in found.items() if name in wanted}

    def _find_outputs(self, sample: Mapping[str, Array]) -> None:
        table = self._table(sample)
        specs = []
        for method in self._methods:
            for name, array in _tensors(method, getattr(self._estimator, method)(table)).items():
                specs.append(TensorSpec(name, datatype_of(array.dtype), (-1, *array.shape[1:])))
                self._method_of[name] = method
        self.outputs = tuple(specs)

    def _table(self, inputs: Mapping[str, Array]) -> Any:
        """Return the inputs as the model received them when it was trained."""
        names = [one.name for one in self.signature.inputs]
        if self.signature.form == "matrix":
            return inputs[names[0]]
        if self.signature.form == "texts":
            return list(inputs[names[0]])
        if self.signature.form == "columns":
            return np.stack([inputs[name].astype(object) for name in names], axis=1)
        import pandas as pd  # noqa: PLC0415 - only models of tables with named columns need it

        return pd.DataFrame({name: inputs[name] for name in names})


def _tensors(method: str, result: Any) -> dict[str, Array]:
    """Return the result of a method as tensors. A list has one array for each target of the model."""
    if isinstance(result, list):
        return {f"{method}_{number}": _tensor(one) for number, one in enumerate(result)}
    return {method: _tensor(result)}


def _tensor(result: Any) -> Array:
    if np.prod(result.shape, dtype=np.int64) > MAX_VALUES:
        raise OutputTooLarge(f"the output has more than {MAX_VALUES} values: send fewer rows")
    array: Array = np.asarray(result.toarray() if hasattr(result, "toarray") else result)
    if array.dtype.kind in "US":
        return array.astype(str).astype(object)
    if array.dtype == object:
        return np.array([str(one) for one in array.ravel()], dtype=object).reshape(array.shape)
    if datatype_of(array.dtype) == BYTES:
        return array.astype(np.float64)
    return array


def joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the rows of several input tensors as one."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def samples(form: Signature, rows: int = 3) -> list[dict[str, Array]]:
    """Return input tensors that a model might accept: numbers of several sizes, and texts that it knows."""
    found = []
    for first in (1.0, 0.25, -1.0):
        values = first + 0.5 * np.arange(rows)
        found.append({one.name: _sample(one, number, form, values) for number, one in enumerate(form.inputs)})
    return found


def _sample(spec: TensorSpec, number: int, form: Signature, values: Array) -> Array:
    if spec.datatype == BYTES:
        columns = spec.shape[1] if len(spec.shape) > 1 else 1
        texts = [form.examples.get(number + column, "") for column in range(columns)]
        return np.array([texts] * len(values), dtype=object).reshape(len(values), *spec.shape[1:])
    table = np.multiply.outer(values, 1 + 0.125 * np.arange(spec.shape[1])) if len(spec.shape) > 1 else values
    return np.asarray(table).astype(DTYPES[spec.datatype])
