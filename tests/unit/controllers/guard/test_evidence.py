"""Tests of the evidence that a rank or node is slow. Under any noise false alarms are rare, slow ranks and
nodes raise alarms, and alarms end.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from convoy_controllers.guard import evidence
from convoy_controllers.guard.channel_state import ChannelState, Rules, advance
from convoy_controllers.guard.robust import group_medians, others_median

RULES = Rules()


def noise_of_kind(kind: str, rng: np.random.Generator, size: int) -> np.ndarray:
    """Return noise of the given kind, scaled so that its robust standard deviation is 1."""
    match kind:
        case "normal":
            return rng.normal(0, 1, size)
        case "laplace":
            return rng.laplace(0, 1 / (np.log(2) * 1.4826), size)
        case "t":
            return rng.standard_t(6, size)
        case _:
            return rng.uniform(-1.349, 1.349, size)


@pytest.mark.parametrize("kind", ["normal", "laplace", "t", "uniform"])
@pytest.mark.parametrize("below", [0.0, 0.5, 3.0])
def test_an_e_value_has_a_mean_of_at_most_one_while_nothing_is_slow(kind: str, below: float) -> None:
    values = np.exp(evidence.log_e_values(noise_of_kind(kind, np.random.default_rng(1), 400_000) - below))
    error = values.std(axis=1) / np.sqrt(values.shape[1])
    assert (values.mean(axis=1) <= 1 + 4 * error).all()


def test_an_e_value_never_falls_with_slowness_and_is_bounded() -> None:
    values = evidence.log_e_values(np.linspace(-50, 1000, 20_000))
    assert (np.diff(values, axis=1) >= 0).all() and values.max() <= evidence.MOST
    assert (evidence.log_e_values(np.array([np.nan])) == 0).all()


def test_single_window_raises_no_alarm() -> None:
    watch = calm(8)
    for _ in range(20):
        watch = advance(watch, np.array([50.0, *np.zeros(7)]), 10, 8, RULES)
        assert not watch.alarmed.any()
        for step in range(12):
            watch = advance(watch, noise(step, 8), 11, 8, RULES)


def noise(seed: int, units: int, sigma: float = 0.005) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sigma, units)


def calm(units: int, windows: int = 12) -> ChannelState:
    watch = ChannelState.initial(units)
    for step in range(windows):
        watch = advance(watch, noise(1000 + step, units), step + 1, units, RULES)
    return watch


@pytest.mark.parametrize("kind", ["normal", "laplace", "t"])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_healthy_ranks_rarely_raise_alarms(kind: str, rho: float) -> None:
    """Run 8 jobs without a slow rank. Each job lasts 60 windows. At most 4 of the jobs may raise an alarm.

    This is stricter than the run length, which permits a false alarm every 50 windows on average: about 10
    in all jobs.
    """
    rules, alarms = Rules(run_length=50, delta=0.0), 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        watch, state = ChannelState.initial(32), noise_of_kind(kind, rng, 32)
        for step in range(60):
            state = rho * state + np.sqrt(1 - rho**2) * noise_of_kind(kind, rng, 32)
            watch = advance(watch, 0.005 * state, step + 1, 32, rules)
        alarms += int(watch.episodes.sum() > 0)
    assert alarms <= 4


def test_constant_offset_is_no_slowness_but_an_increase_is() -> None:
    rng = np.random.default_rng(3)
    offset, watch = rng.normal(0, 0.015, 64), ChannelState.initial(64)
    for step in range(100):
        watch = advance(watch, offset + noise(step, 64), step + 1, 64, RULES)
    assert not watch.episodes.any()
    slowest = int(offset.argmax())
    for step in range(12):
        late = np.where(np.arange(64) == slowest, 0.06, 0.0)
        watch = advance(watch, offset + late + noise(step, 64), 101 + step, 64, RULES)
    assert np.nonzero(watch.alarmed)[0].tolist() == [slowest]
    assert watch.since[slowest] in (101, 102) and watch.size[slowest] == pytest.approx(0.06, abs=0.015)


def test_alarm_is_persistent_after_the_lasting_time() -> None:
    watch, alarm = calm(16), None
    for step in range(60):
        watch = advance(watch, noise(step, 16) + 0.1 * (np.arange(16) == 3), 13 + step, 16, RULES)
        if alarm is None and watch.alarmed[3]:
            alarm = step
        assert watch.persistent(RULES)[3] == (alarm is not None and step - alarm >= RULES.lasting)
    assert alarm is not None and alarm <= 3 and not watch.alarmed[np.arange(16) != 3].any()


def test_bursts_raise_suspicion_and_are_never_persistent() -> None:
    watch = calm(16)
    for step in range(180):
        slow = 0.2 if step % 60 < 10 else 0.0
        watch = advance(watch, noise(step, 16) + slow * (np.arange(16) == 3), 13 + step, 16, RULES)
        assert not watch.persistent(RULES).any()
    assert watch.episodes[3] == 3 and not watch.alarmed.any()


def test_an_alarm_ends_when_the_slowness_does() -> None:
    watch = calm(16)
    for step in range(40):
        watch = advance(watch, noise(step, 16) + 0.1 * (np.arange(16) == 3), 13 + step, 16, RULES)
    assert watch.alarmed[3]
    for step in range(8):
        watch = advance(watch, noise(step, 16), 60 + step, 16, RULES)
    assert not watch.alarmed.any() and watch.since[3] == 0 and watch.size[3] == 0
    assert not watch.persistent(RULES).any()


def state_after_slowness(sigma: float, *parts: tuple[int, float]) -> ChannelState:
    """Return the state after windows in which unit 3 of eight is slow. `parts`: (windows, slowness), one
    after another.
    """
    watch, step = ChannelState.initial(8), 0
    for windows, slow in parts:
        for _ in range(windows):
            step += 1
            watch = advance(watch, noise(step, 8, sigma) + slow * (np.arange(8) == 3), step, 8, RULES)
    return watch


@pytest.mark.parametrize(
    ("left", "over"), [(-0.05, True), (0.0, True), (0.12, False), (0.3, False), (0.6, False)]
)
def test_alarm_under_high_noise_ends_when_little_slowness_remains(left: float, over: bool) -> None:
    assert state_after_slowness(0.25, (64, 0.0), (60, 0.6)).alarmed[3]
    found = state_after_slowness(0.25, (64, 0.0), (60, 0.6), (80, left))
    assert found.alarmed[3] == (not over)


@pytest.mark.parametrize(("sigma", "before", "left"), [(0.05, 0.4, 0.08), (0.02, 0.3, 0.06), (0.1, 0.6, 0.1)])
def test_alarm_continues_while_reduced_slowness_is_actionable(
    sigma: float, before: float, left: float
) -> None:
    found = state_after_slowness(sigma, (64, 0.0), (30, before), (400, left))
    assert found.alarmed[3] and found.episodes[3] == 1


def test_single_extreme_window_ends_no_alarm() -> None:
    found = state_after_slowness(0.005, (64, 0.0), (2, 0.1), (1, 3.1), (300, 0.1))
    assert found.alarmed[3] and found.episodes[3] == 1


def test_second_alarm_is_independent_of_earlier_slowness() -> None:
    found = state_after_slowness(0.003, (64, 0.0), (40, 0.6), (40, 0.0), (120, 0.045))
    assert found.alarmed[3] and found.episodes[3] == 2


def test_silent_rank_keeps_its_evidence() -> None:
    watch = calm(16)
    before = watch.strength.copy()
    for step in range(50):
        observed = noise(step, 16)
        observed[3] = np.nan
        watch = advance(watch, observed, 20 + step, 16, RULES)
    assert watch.strength[3] == before[3] and not watch.alarmed.any()


def test_suspects_do_not_widen_the_noise_estimate() -> None:
    watch = calm(16)
    before = watch.sigma
    for step in range(40):
        residual = noise(step, 16)
        residual[:7] += np.where(step % 2, 0.3, 0.1)
        watch = advance(watch, residual, 13 + step, 16, RULES)
    assert watch.alarmed[:7].all() and watch.sigma == pytest.approx(before, rel=0.4)


@settings(max_examples=60)
@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(-5, 5) | st.just(np.nan)), st.integers(1, 4))
def test_medians_of_others_equal_the_naive_medians(values: np.ndarray, kinds: int) -> None:
    groups = np.arange(len(values)) % kinds
    with np.errstate(all="ignore"):
        for index, found in enumerate(others_median(values, groups)):
            others = [
                v
                for i, v in enumerate(values)
                if i != index and groups[i] == groups[index] and not np.isnan(v)
            ]
            assert found == pytest.approx(np.median(others)) if others else np.isnan(found)
        for group, found in enumerate(group_medians(values, groups)):
            mine = [v for v, g in zip(values, groups, strict=True) if g == group and not np.isnan(v)]
            assert found == pytest.approx(np.median(mine)) if mine else np.isnan(found)


@pytest.mark.parametrize("seed", range(5))
def test_first_slow_window_does_not_widen_the_noise_of_a_single_unit(seed: int) -> None:
    rng, watch = np.random.default_rng(seed), ChannelState.initial(1)
    for step in range(40):
        watch = advance(watch, rng.normal(0, 0.01, 1), step + 1, 1, RULES)
    before = watch.sigma
    for step in range(15):
        watch = advance(watch, rng.normal(0.12, 0.01, 1), 41 + step, 1, RULES)
    assert watch.alarmed[0] and watch.sigma < 1.3 * before
