"""The intake of samples: their lengths, the policy for over-long samples, and the quarantine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from operator import index
from typing import Any, Literal

import torch

from convoy_workloads.data.padding import IGNORED

OverlongPolicy = Literal["truncate", "reject"]
Reason = Literal["empty", "over-long", "no loss terms"]


class SampleError(TypeError):
    """Raised for samples whose length or loss terms cannot be determined. The message names the sample."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A sample that is not used, and the reason."""

    sample: int
    reason: Reason
    length: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """A sample that fits into a batch."""

    value: Any
    length: int
    weight: int


def length_of(sample: Any) -> int:
    """Return the number of tokens of a sample: the first dimension of a tensor, of `input_ids` in a mapping
    (else of its first tensor), or of the first element of a tuple. None, for a sample that the dataset cannot
    read, has no tokens.

    Raises SampleError for other samples.
    """
    if sample is None:
        return 0
    found = _main_part(sample)
    shape = getattr(found, "shape", None)
    if isinstance(sample, Mapping) and "input_ids" in sample and shape is not None and len(shape) != 1:
        raise SampleError(f"input_ids has the shape {list(shape)}, not [tokens]: remove the other dimensions")
    if shape is not None and len(shape):
        return int(shape[0])
    if isinstance(found, list) and found and not isinstance(found[0], Integral):
        raise SampleError("a list of other things than tokens is ambiguous: return a tuple, or give `length`")
    if shape is None and hasattr(found, "__len__") and not isinstance(found, str | bytes | Mapping):
        return len(found)
    raise SampleError(f"a sample of type {type(sample).__name__} has no first dimension: give `length`")


def loss_terms(sample: Any, length: int) -> int:
    """Return the number of terms of a sample's loss: the elements of `labels` that are not -100, or of the
    second of two elements of a tuple; 1 for a single label; without labels, the number of tokens.
    """
    labels = sample.get("labels") if isinstance(sample, Mapping) else None
    if isinstance(sample, tuple) and len(sample) == 2:
        labels = sample[1]
    if labels is None:
        return length
    shape = getattr(labels, "shape", None)
    if isinstance(labels, int | float) or (shape is not None and not len(shape)):
        return 1
    if (shape[0] if shape is not None else len(labels) if _sized(labels) else -1) != length:
        return length
    return int((torch.as_tensor(labels) != IGNORED).sum())


def _main_part(sample: Any) -> Any:
    if isinstance(sample, Mapping):
        shaped = [one for one in sample.values() if len(getattr(one, "shape", ()))]
        return sample.get("input_ids", shaped[0] if shaped else sample)
    return sample[0] if isinstance(sample, tuple) and sample else sample


def truncate(sample: Any, tokens: int) -> Any:
    """Return a sample with only its first `tokens` tokens: each part that has as many elements as the
    sample has tokens is cut.
    """
    length = length_of(sample)

    def cut(part: Any) -> Any:
        shape = getattr(part, "shape", None)
        size = (shape[0] if len(shape) else 0) if shape is not None else len(part) if _sized(part) else 0
        return part[:tokens] if size == length else part

    if isinstance(sample, Mapping):
        return {name: cut(part) for name, part in sample.items()}
    return tuple(map(cut, sample)) if isinstance(sample, tuple) else cut(sample)


def _sized(part: Any) -> bool:
    return isinstance(part, list | tuple)


@dataclass(frozen=True, kw_only=True)
class SampleFunctions:
    """The functions through which a loader treats samples. The defaults fit tensors, and mappings and tuples
    of tensors, whose first dimension is the number of tokens.
    """

    length: Callable[[Any], int] = length_of
    """Return the number of tokens of a sample."""
    weight: Callable[[Any], int] | None = None
    """Return the number of terms of a sample's loss, such as the tokens with a label. None: `loss_terms`."""
    truncate: Callable[[Any, int], Any] = truncate
    """Return a sample with at most this many tokens."""
    collate: Callable[[list[Any]], Any] | None = None
    """Return the batch of a list of samples. None: `pad_batch`."""


@dataclass(frozen=True)
class Intake:
    """Accepts samples, cuts them, or puts them into quarantine."""

    functions: SampleFunctions
    longest: int
    """Maximum length of a sample."""
    overlong: OverlongPolicy
    shortest: int = 1
    """Minimum length of a sample. A shorter sample counts as empty."""

    def accept(self, number: int, value: Any) -> Accepted | Quarantined:
        """Return the sample as it goes into a batch, or the reason why it does not.

        Raises SampleError if its length or weight is not a whole number from 0.
        """
        length = self._measure(self.functions.length, number, value, "length")
        if length > self.longest and self.overlong == "truncate":
            value = self.functions.truncate(value, self.longest)
            length = self._measure(self.functions.length, number, value, "length")
        if length > self.longest:
            return Quarantined(number, "over-long", length)
        if length < self.shortest:
            return Quarantined(number, "empty", length)
        terms = self.functions.weight or (lambda sample: loss_terms(sample, length))
        weight = self._measure(terms, number, value, "weight")
        if not weight:
            return Quarantined(number, "no loss terms", length)
        return Accepted(value, length, weight)

    @staticmethod
    def _measure(function: Callable[[Any], int], number: int, value: Any, name: str) -> int:
        try:
            found = function(value)
        except Exception as error:
            raise SampleError(f"the {name} of sample {number} cannot be determined: {error}") from error
        try:
            whole = index(found)  # Integers of numpy and tensors too.
        except TypeError:
            whole = -1
        if whole < 0 or isinstance(found, bool):
            raise SampleError(f"the {name} of sample {number} is {found!r}, not a whole number from 0")
        return whole
