"""The inputs of a model of scikit-learn, found in the fitted model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from convoy_workloads.serving.protocol import ModelError, TensorSpec

MATRIX, TEXT = "input", "text"
"""Names of the only input of a model without named columns."""
NUMBER = "FP64"
"""Datatype of an input that holds no texts."""
SOME_TEXT = "a text"
"""Example for an input whose texts the model does not keep."""
_INNER = ("best_estimator_", "estimator_", "estimators_", "calibrated_classifiers_", "estimator")
"""Attributes of meta-estimators with the models that receive the inputs unchanged."""


@dataclass(frozen=True)
class Signature:
    """The form in which a model receives its inputs."""

    form: Literal["matrix", "texts", "frame", "columns"]
    """A table of one datatype, a list of texts, a table with named columns, or a table of mixed columns
    without names.
    """
    inputs: tuple[TensorSpec, ...]
    examples: Mapping[int, str]
    """A text for each column that holds texts, by number of the column."""


def signature(estimator: Any, given: Mapping[str, str]) -> Signature:
    """Return the inputs of a fitted model. `given`: datatypes by name of the input, which take precedence.

    Raises ModelError if the model does not show its inputs, or if it lacks an input in `given`.
    """
    found = _signature(estimator, given)
    names = [one.name for one in found.inputs]
    if unknown := [name for name in given if name not in names]:
        shown = ", ".join(names[:20])
        raise ModelError(f"params.inputs: the model has no input {unknown[0]!r}; it has {shown}")
    inputs = tuple(TensorSpec(one.name, given.get(one.name, one.datatype), one.shape) for one in found.inputs)
    return Signature(found.form, inputs, found.examples)


def _signature(estimator: Any, given: Mapping[str, str]) -> Signature:
    named = getattr(estimator, "feature_names_in_", None)
    if named is not None:
        texts = _texts(estimator, range(len(named)))
        return Signature("frame", _columns([str(name) for name in named], texts), texts)
    if any(_reads_text(part) for part in _receivers(estimator)):
        return Signature("texts", (TensorSpec(TEXT, "BYTES", (-1,)),), {0: SOME_TEXT})
    count = getattr(estimator, "n_features_in_", None)
    if not isinstance(count, int):
        raise ModelError(
            f"the model {type(estimator).__name__} does not show its number of inputs (n_features_in_): it "
            "is not fitted, or its first step keeps none"
        )
    texts = _texts(estimator, range(count))
    names = [f"x{number}" for number in range(count)]
    if 0 < len(texts) < count or any(name in given for name in names):
        return Signature("columns", _columns(names, texts), texts)
    kind = "BYTES" if texts else NUMBER
    return Signature("matrix", (TensorSpec(MATRIX, kind, (-1, count)),), texts)


def _columns(names: Sequence[str], texts: Mapping[int, str]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, "BYTES" if number in texts else NUMBER, (-1,)) for number, name in enumerate(names)
    )


def _receivers(estimator: Any) -> Iterator[Any]:
    """Yield the parts of a model that receive its inputs unchanged, the model first."""
    yield estimator
    for inner in _inner(estimator):
        yield from _receivers(inner)


def _inner(estimator: Any) -> list[Any]:
    if isinstance(estimator, Pipeline):
        return [step for _, step in estimator.steps if step not in (None, "passthrough")][:1]
    if isinstance(estimator, FeatureUnion):
        return [part for _, part in estimator.transformer_list if part not in ("drop", "passthrough")]
    found = next((value for name in _INNER if (value := getattr(estimator, name, None)) is not None), None)
    # All members of an ensemble have the same inputs.
    while isinstance(found, list | tuple | np.ndarray):
        found = found[0] if len(found) else None
    return [found] if hasattr(found, "__dict__") else []


def _reads_text(part: Any) -> bool:
    """Return True if a part is a vectorizer of texts."""
    return hasattr(part, "build_analyzer")


def _texts(estimator: Any, columns: Sequence[int]) -> dict[int, str]:
    """Return an example for each column that holds texts. `columns`: those that the model receives, in its
    order.
    """
    found: dict[int, str] = {}
    for part in _receivers(estimator):
        if isinstance(part, ColumnTransformer):
            for name, inner, _ in part.transformers_:
                chosen = part._transformer_to_input_indices.get(name, [])
                if inner not in ("drop", "passthrough"):
                    found = {**_texts(inner, [columns[number] for number in chosen]), **found}
        elif _reads_text(part):
            found = {**dict.fromkeys(columns, SOME_TEXT), **found}
        else:
            for column, values in zip(columns, _known(part), strict=False):
                text = next((str(one) for one in values if isinstance(one, str)), None)
                if text is not None:
                    found.setdefault(column, text)
    return found


def _known(part: Any) -> Sequence[Any]:
    """Return the values that a transformer has learnt for each column, if it keeps them."""
    categories = getattr(part, "categories_", None)
    if categories is not None:
        return list(categories)
    statistics = getattr(part, "statistics_", None)  # SimpleImputer
    return [] if statistics is None else [[one] for one in statistics]
