"""Tests of the models of a step's time."""

from __future__ import annotations

import random

import pytest

from convoy_workloads.packing.step_cost import (
    FitError,
    LinearQuadratic,
    PowerLaw,
    RunningTimings,
    Timing,
    fit_linear_quadratic,
    fit_power_law,
    mape,
)

SIZES = [(batch, tokens) for batch in (1, 2, 8) for tokens in (128, 512, 1024, 4096)]


def timings_of(model: PowerLaw | LinearQuadratic, noise: float = 0.0) -> list[Timing]:
    rng = random.Random(1)
    return [
        Timing(batch, tokens, model.seconds(batch, tokens) * rng.uniform(1 - noise, 1 + noise))
        for batch, tokens in SIZES
    ]


@pytest.mark.parametrize("exponent", [1.0, 1.31, 2.0])
def test_a_power_law_is_found_again(exponent: float) -> None:
    found = fit_power_law(timings_of(PowerLaw(1e-6, exponent), noise=0.02))
    assert found.exponent == pytest.approx(exponent, abs=0.03)


@pytest.mark.parametrize(
    "model", [LinearQuadratic(1e-6, 2e-9, 1e-3), LinearQuadratic(1e-6, 0, 0), LinearQuadratic(0, 1e-9, 1e-2)]
)
def test_a_linear_quadratic_model_is_found_again(model: LinearQuadratic) -> None:
    found = fit_linear_quadratic(timings_of(model))
    for name in ("linear", "quadratic", "fixed"):
        assert getattr(found, name) == pytest.approx(getattr(model, name), rel=1e-4, abs=1e-12)


def test_no_coefficient_is_negative() -> None:
    # Steps that become cheaper by the token would need a negative quadratic part.
    found = fit_linear_quadratic([Timing(1, 100, 1.0), Timing(1, 200, 1.5), Timing(1, 400, 1.6)])
    assert min(found.linear, found.quadratic, found.fixed) >= 0


def test_a_power_law_fits_mixed_work_worse_than_the_linear_quadratic_model() -> None:
    measured = timings_of(LinearQuadratic(1e-6, 1e-9, 1e-3))
    power, mixed = fit_power_law(measured), fit_linear_quadratic(measured)
    assert 1 < power.exponent < 2
    assert mape(mixed, measured) < 0.001
    assert mape(power, measured) > 0.1


def test_the_local_exponent_grows_from_linear_to_quadratic() -> None:
    model = LinearQuadratic(1.0, 0.01, 5.0)
    assert model.local_exponent(1) == pytest.approx(1.01, abs=0.01)
    assert model.local_exponent(100) == pytest.approx(1.5)
    assert model.local_exponent(10**6) == pytest.approx(2, abs=0.01)
    assert model.overhead_tokens == 5


def test_too_few_sizes_are_an_error() -> None:
    with pytest.raises(FitError, match="two sizes"):
        fit_power_law([Timing(1, 64, 1.0), Timing(2, 64, 2.0)])
    with pytest.raises(FitError, match="three different sizes"):
        fit_linear_quadratic([Timing(1, 64, 1.0), Timing(1, 128, 2.0), Timing(1, 128, float("nan"))])


def test_a_slower_machine_makes_the_model_outdated_until_it_is_refitted() -> None:
    model = LinearQuadratic(1e-6, 2e-9, 1e-3)
    running = RunningTimings()
    for one in timings_of(model):
        running.add(one)
    assert not running.outdated(model)
    for _ in range(20):
        for one in timings_of(model):
            running.add(Timing(one.batch, one.tokens, 1.5 * one.seconds))
    assert running.outdated(model)
    assert not running.outdated(fit_linear_quadratic(running.timings()))


def test_running_timings_are_bounded() -> None:
    running = RunningTimings(limit=3)
    for tokens in (1, 2, 3, 1, 4):
        running.add(Timing(1, tokens, 1.0))
    assert [one.tokens for one in running.timings()] == [3, 1, 4]
