"""Tests of values that are not tensors: their encoded form is exact and cannot run code."""

from __future__ import annotations

import json
import random
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from convoy_workloads.runtime.exactness import rng_state
from convoy_workloads.runtime.tiers import values

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Return True if both values are of the same types and equal bit for bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, SimpleNamespace):
        return same(vars(one), vars(other))
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.numpy().tobytes() == other.numpy().tobytes()
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other)


@given(PLAIN)
def test_plain_values_are_restored_unchanged(value: Any) -> None:
    expected = dict(sorted(value.items())) if isinstance(value, dict) and all(map(_text, value)) else value
    assert same(values.loads(values.dumps(value)), _ordered(expected))


PATTERNS = st.integers(0, 2**64 - 1)
NANS = st.builds(
    lambda sign, payload: sign << 63 | 0x7FF << 52 | payload, st.booleans(), st.integers(1, 2**52 - 1)
)


@given(PATTERNS | NANS)
@example(0x7FF0_0000_0000_0001)  # This number is a signalling NaN.
@example(0xFFF8_0000_0000_0000)
@example(0xFFF0_0000_0000_0000)
def test_every_float_is_restored_bit_by_bit(pattern: int) -> None:
    value = struct.unpack("<d", pattern.to_bytes(8, "little"))[0]
    assert struct.pack("<d", value) == pattern.to_bytes(8, "little"), "the machine itself keeps it"
    for found in (values.loads(values.dumps(value)), values.loads(values.dumps({1: [value]}))[1][0]):
        assert struct.pack("<d", found) == pattern.to_bytes(8, "little")


def _text(key: Any) -> bool:
    return isinstance(key, str)


def _ordered(value: Any) -> Any:
    """Return the value with sorted keys, because the keys of a decoded dict are sorted."""
    if isinstance(value, dict):
        items = sorted(value.items()) if all(map(_text, value)) and "$" not in value else value.items()
        return {key: _ordered(one) for key, one in items}
    if isinstance(value, list | tuple):
        return type(value)(_ordered(one) for one in value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.5, float("nan"), -0.0]),
        torch.tensor(3, dtype=torch.int64),
        torch.empty(0, 3),
        torch.arange(6, dtype=torch.uint8).reshape(2, 3),
        np.arange(6, dtype=np.uint32).reshape(3, 2),
        np.float32(0.1),
        float("inf"),
        -0.0,
        {"$": "a key that looks like ours"},
        {1: "a", "1": "b"},
        SimpleNamespace(value={"a": (1, 2)}),
        random.Random(3).getstate(),
        torch.get_rng_state(),
    ],
)
def test_special_values_are_restored_unchanged(value: Any) -> None:
    assert same(values.loads(values.dumps(value)), value)


def test_bfloat16_and_types_are_restored() -> None:
    one = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    back = values.loads(values.dumps({"t": one, "d": torch.float16}))
    assert back["t"].dtype is torch.bfloat16 and torch.equal(back["t"], one) and back["d"] is torch.float16


def test_restored_generators_continue_the_same_sequence() -> None:
    state = values.loads(values.dumps(SimpleNamespace(value=rng_state()))).value
    expected = (random.random(), torch.rand(3).tolist(), np.random.rand())
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    assert (random.random(), torch.rand(3).tolist(), np.random.rand()) == expected


@pytest.mark.parametrize("value", [object(), {"a": [1, {2}]}, lambda: None, {"x": {"y": object()}}])
def test_an_unsupported_value_is_named(value: Any) -> None:
    with pytest.raises(values.UnsavableError, match="a checkpoint holds"):
        values.dumps(value)


def test_an_error_contains_the_path_of_the_unsupported_value() -> None:
    with pytest.raises(values.UnsavableError, match=r"^\.a\[1\]\.b is a builtins\.object"):
        values.dumps({"a": [0, {"b": object()}]})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        json.dumps({"$": "code", "v": "print()"}),
        json.dumps({"$": "tensor"}),
        json.dumps({"$": "float", "v": "7ff0"}),
    ],
)
def test_invalid_texts_are_rejected(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        values.loads(text)
