"""Tests of quantities. The expected values are those of k8s.io/apimachinery v0.36.3."""

from __future__ import annotations

import pytest

from convoy_controllers.autoscale.arithmetic import MAX_INT64
from convoy_controllers.autoscale.quantity import approximate_float, milli_value


@pytest.mark.parametrize(
    ("quantity", "milli", "approximate"),
    [
        ("0", 0, 0.0),
        (3, 3000, 3.0),
        ("0.1", 100, 0.1),
        (".5", 500, 0.5),
        ("100m", 100, 0.1),
        ("0.57", 570, 570 * 0.001),
        ("1500u", 2, 1500 * 1e-6),
        ("1n", 1, 1e-9),
        ("5e-1", 500, 0.5),
        ("1E3", 1_000_000, 1000.0),
        ("1.5k", 1_500_000, 1500.0),
        ("1Gi", 1024**3 * 1000, 1024.0**3),
        ("0.00000000001", 1, 1e-9),
        ("-1500u", -2, -1500 * 1e-6),
        ("2E", MAX_INT64, 2e18),
    ],
)
def test_values(quantity: str | int, milli: int, approximate: float) -> None:
    assert milli_value(quantity) == milli
    assert approximate_float(quantity) == approximate


def test_a_stored_quantity_has_a_rounding_error() -> None:
    assert approximate_float("0.57") != 0.57


@pytest.mark.parametrize("text", ["", "a", "1kk", "1.2.3", "1 k", "0x1", "1e9999"])
def test_a_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity; write a number such as"):
        milli_value(text)
