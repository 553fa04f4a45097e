"""State of one channel: the residuals of many units over windows, their noise, baselines and suspicions.

The noise and the baselines are learned only from windows of units that are not suspected.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from convoy_controllers.guard import evidence
from convoy_controllers.guard.robust import TO_SIGMA, clipped, median, spread
from convoy_controllers.guard.telemetry import Bools, Floats, Ints

SUSPECTED = float(np.log(30.0))
"""Default of `Rules.suspected`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits that define slowness and alarms."""

    delta: float = 0.02
    """Largest slowness that is tolerated. Only greater slowness is blamed. Use 0.1 on shared devices."""
    run_length: float = 1e6
    """Minimum mean number of windows between two false alarms of a job."""
    least_sigma: float = 0.003
    cap: float = 0.05
    """Maximum offset that a unit's baseline may have."""
    fast: float = 0.05
    """Maximum offset below 0 that a unit's baseline may have, for a unit that is always fast."""
    settle: int = 64
    """Number of a unit's first windows over which its baseline is learned. The baseline then stays fixed,
    so that later drift is detected.
    """
    lasting: int = 16
    """Minimum number of windows since the alarm for slowness to be persistent."""
    share: float = 0.7
    """Minimum share of the windows since the alarm that must be slow for slowness to be persistent."""
    clear: float = 1e3
    """Amount of evidence that ends an alarm. It may be evidence that the unit is no longer slow, or
    evidence that less than half of its slowness remains.
    """
    suspected: float = SUSPECTED
    """Logarithm of the evidence of slowness at which learning stops. Noise and baselines are learned only
    from units with less evidence.
    """
    slight: float = 0.05
    """Largest slowness that needs no action. An alarm can end because its slowness has faded only if the
    remaining slowness is at most this.
    """


_NOISE_WINDOWS = 32
"""Number of windows over which the noise is averaged."""
_RISING_WINDOWS = 16
"""Number of windows over which larger noise is averaged, if it is measured from one window to the next."""
_LEVEL = 16
_PRIOR_RHO, _PRIOR_RHO_WINDOWS = 0.2, 4.0
_MOST_RHO = 0.8
_WARM_UP = 12
"""Minimum number of residuals that the noise estimate must cover before evidence accumulates."""
_FALLING = 0.5
"""Weight of smaller noise in the first windows. The step of a rank that becomes slow may be in the first
difference.
"""
_MOST_RISE = 4.0
"""Largest ratio of one window's noise to the noise so far that counts. The step of a rank that becomes slow
is larger.
"""
_FEW_UNITS = 8
"""Number of units below which one outlier moves their median."""
_FEW_WINDOWS = 8
"""Minimum number of windows that `ChannelState.size` must cover before it counts for `ChannelState.worst`."""
_LEAST_TAU = 0.002
_PRIOR_TAUS = 2.0
_BASELINE_TAUS = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class ChannelState:
    """A channel's state after some windows. Arrays have one entry per unit."""

    windows: int
    sigma: float
    """Standard deviation of a healthy unit's residual around the unit's own level in one window; NaN if
    unknown.
    """
    rho: float
    """Lag-1 autocorrelation of the residuals."""
    level: Floats
    """Moving average of the unit's residual."""
    level_windows: Floats
    """Number of windows in `level`."""
    deviation: Floats
    """Last residual minus the unit's level before that residual."""
    mean: Floats
    """Mean residual over the unit's first `Rules.settle` windows. The baseline is derived from it."""
    mean_windows: Floats
    """Number of windows in `mean`."""
    sums: Floats
    """Accumulated evidence of slowness: one row per assumed shift, one column per unit."""
    strength: Floats
    """Logarithm of the evidence that the unit is slow."""
    against: Floats
    """Accumulated evidence that the unit is no longer slow: one row per assumed shift, one column per unit.
    """
    fading: Floats
    """Accumulated evidence that less than half of the slowness is left: one row per assumed shift, one
    column per unit.
    """
    since: Ints
    """First step of the current suspicion; 0 without a suspicion."""
    suspected_windows: Ints
    """Number of windows that the unit has reported since the suspicion started."""
    alarmed: Bools
    alarmed_windows: Ints
    """Number of windows that the unit has reported since the alarm."""
    hits: Ints
    """Number of slow windows among `alarmed_windows`."""
    size: Floats
    """Mean excess of the residual over the baseline since the suspicion started."""
    worst: Floats
    """Maximum of `size` during the current suspicion; 0 until `size` covers `_FEW_WINDOWS` windows."""
    episodes: Ints
    """Number of alarms that the unit has had."""

    @classmethod
    def initial(cls, units: int) -> ChannelState:
        """Return the state of a channel with `units` units before the first window."""
        zeros, numbers = np.zeros(units), np.zeros(units, dtype=np.int64)
        return cls(
            windows=0,
            sigma=float("nan"),
            rho=_PRIOR_RHO,
            level=zeros,
            level_windows=zeros,
            deviation=np.full(units, np.nan),
            mean=zeros,
            mean_windows=zeros,
            sums=evidence.empty_sums(units),
            strength=np.full(units, -np.inf),
            against=evidence.empty_sums(units),
            fading=evidence.empty_sums(units),
            since=numbers,
            suspected_windows=numbers,
            alarmed=np.zeros(units, dtype=np.bool_),
            alarmed_windows=numbers,
            hits=numbers,
            size=zeros,
            worst=zeros,
            episodes=numbers,
        )

    def rearranged(self, order: Ints) -> ChannelState:
        """Return the state for a new set of units.

        `order` gives each new unit's old number; -1 means that the unit is new.
        """
        fresh, arrays = ChannelState.initial(len(order)), dict[str, Any]()
        for one in fields(fresh):
            if isinstance(value := getattr(fresh, one.name), np.ndarray):
                arrays[one.name] = value.copy()
                arrays[one.name][..., order >= 0] = getattr(self, one.name)[..., order[order >= 0]]
        return replace(self, **arrays)

    def replaced(self, other: ChannelState, units: Bools) -> ChannelState:
        """Return the state with the units of the mask `units` taken from `other`. If this state knows no
        noise, that of `other` counts.
        """
        arrays = dict[str, Any]()
        for one in fields(self) if units.any() else ():
            if isinstance(value := getattr(self, one.name), np.ndarray):
                arrays[one.name] = np.where(units, getattr(other, one.name), value)
        sigma = other.sigma if np.isnan(self.sigma) else self.sigma
        return replace(self, sigma=sigma, windows=max(self.windows, other.windows), **arrays)

    def noise(self, rules: Rules) -> float:
        """Return the standard deviation that independent noise would need to raise as many false alarms as
        the actual, autocorrelated noise.
        """
        # With few residuals the estimate of sigma is uncertain, so enlarge it.
        known = 1 + 2 / np.sqrt(max(1, min(self.windows, _NOISE_WINDOWS) * len(self.level)))
        sigma = max(self.sigma * known, rules.least_sigma)
        return float(sigma * np.sqrt((1 + self.rho) / (1 - self.rho)))

    def baseline(self, rules: Rules) -> tuple[Floats, Floats]:
        """Return each unit's permanent offset, and the remaining uncertainty of that offset. The offset is
        shrunk towards 0, and its absolute value is at most `Rules.cap`.
        """
        noise = self.noise(rules) ** 2 / np.maximum(self.mean_windows, 1)
        known = (self.mean_windows > 0) & (self.strength < rules.suspected)
        between = spread(np.where(known, self.mean, np.nan))
        variance = 0.0 if np.isnan(between) else between**2 - median(noise)
        tau = float(np.sqrt(max(variance, _LEAST_TAU**2)))
        weight = np.where(self.mean_windows > 0, tau**2 / (tau**2 + noise), 0.0)
        most = min(_BASELINE_TAUS * tau, rules.cap)
        offset = clipped(weight * self.mean, -min(most, rules.fast), most)
        return offset, np.minimum(_PRIOR_TAUS * tau * np.sqrt(1 - weight), rules.cap)

    def allowed(self, rules: Rules) -> Floats:
        """Return the largest residual at which a unit still counts as healthy, by unit."""
        offset, doubt = self.baseline(rules)
        return np.asarray(offset + np.minimum(doubt, rules.cap) + np.log1p(rules.delta))

    def persistent(self, rules: Rules) -> Bools:
        """Return a mask of the units with an alarm that is at least `rules.lasting` windows old. At least
        the share `rules.share` of these windows must be slow.
        """
        return np.asarray(
            self.alarmed
            & (self.alarmed_windows >= rules.lasting)
            & (self.hits >= rules.share * self.alarmed_windows)
        )


def advance(
    state: ChannelState,
    residual: Floats,
    first: int,
    family: int,
    rules: Rules,
    before: Floats | None = None,
) -> ChannelState:
    """Return the state after one more window, which starts at step `first`.

    `residual`: by unit, NaN if unknown; `family`: number of units in all channels of the job; `before`:
    residual of the previous window, if the noise is measured from one window to the next.
    """
    if np.isnan(residual).all():
        return state
    if state.windows * len(residual) < _WARM_UP or np.isnan(state.sigma):
        return _learned(state, residual, rules, before)
    allowed = state.allowed(rules)
    z = (residual - allowed) / state.noise(rules)
    sums = evidence.accumulate(state.sums, z)
    strength = evidence.mixed(sums)
    reported = ~np.isnan(residual)
    alarmed = state.alarmed | (strength >= np.log(family * rules.run_length))
    suspected = (strength > 0) | alarmed
    against, fading, over = _endings(state, residual, allowed, rules)
    again = state.alarmed & reported
    stays = alarmed & ~over
    excess = residual - allowed + np.log1p(rules.delta)
    suspected_windows = np.where(state.since > 0, state.suspected_windows, 0) + reported
    weight = np.where(reported, 1 / clipped(suspected_windows, 1, _NOISE_WINDOWS), 0.0)
    size = state.size + weight * (np.where(reported, excess, 0.0) - state.size)
    worst = np.where(suspected_windows >= _FEW_WINDOWS, np.maximum(state.worst, size), 0.0)
    sums[:, over] = -np.inf
    updated = replace(
        state,
        sums=sums,
        strength=np.where(over, -np.inf, strength),
        against=against,
        fading=fading,
        since=np.where(suspected & ~over, np.where(state.since > 0, state.since, first), 0),
        suspected_windows=np.where(suspected & ~over, suspected_windows, 0),
        alarmed=stays,
        alarmed_windows=np.where(stays, state.alarmed_windows + again, 0),
        hits=np.where(stays, state.hits + (again & (z > 0)), 0),
        size=np.where(suspected & ~over, size, 0.0),
        worst=np.where(suspected & ~over, worst, 0.0),
        episodes=state.episodes + (alarmed & ~state.alarmed),
    )
    return _learned(updated, residual, rules, before)


def _endings(
    state: ChannelState, residual: Floats, allowed: Floats, rules: Rules
) -> tuple[Floats, Floats, Bools]:
    """Return the evidence that slowness has ended, the evidence that slowness has faded, and a mask of the
    alarms that end.

    If the noise is many times the allowed slowness, evidence that nothing is slow grows too slowly to end
    an alarm. Such an alarm ends once less than half of the slowness remains and the remaining slowness is
    slight. The residuals of a slow unit vary more than those of a healthy unit. So the evidence of fading
    is measured in units of the noise or of half of the slowness, whichever is larger.
    """
    over = np.zeros(len(residual), dtype=np.bool_)
    against, fading = evidence.empty_sums(len(residual)), evidence.empty_sums(len(residual))
    ranks = np.nonzero(state.alarmed)[0]
    if len(ranks):
        blameless = np.log1p(rules.delta)
        beyond, noise = (residual - allowed)[ranks], state.noise(rules)
        half = np.maximum(0.0, state.worst[ranks] / 2 - blameless)
        against[:, ranks] = evidence.accumulate(state.against[:, ranks], -beyond / noise)
        fading[:, ranks] = evidence.accumulate(
            state.fading[:, ranks], (half - beyond) / np.maximum(noise, half)
        )
        lately = (state.level - allowed)[ranks] + blameless
        faded = evidence.mixed(fading[:, ranks]) >= np.log(rules.clear)
        faded &= lately <= max(rules.slight, blameless)
        over[ranks] = faded | (evidence.mixed(against[:, ranks]) >= np.log(rules.clear))
    return against, fading, over


def _learned(
    state: ChannelState, residual: Floats, rules: Rules, before: Floats | None = None
) -> ChannelState:
    """Return the state with noise and baselines updated. Only units that are not suspected contribute."""
    reported = ~np.isnan(residual)
    trusted = reported & ~state.alarmed & (state.strength < rules.suspected)
    fresh = state.windows + 1
    pace = np.sqrt(1 + 1 / clipped(state.level_windows, 1, _LEVEL))
    deviation = np.where(reported & (state.level_windows > 0), (residual - state.level) / pace, np.nan)
    if before is not None:
        sigma = _stepwise_sigma(state, residual - before, rules)
    else:
        sigma = spread(residual) if state.windows == 0 else _sigma(state, deviation[trusted], rules)
    weight = np.where(reported, 1 / np.minimum(state.level_windows + 1, _LEVEL), 0.0)
    known = np.where(reported, residual, 0.0)
    learns = trusted & (state.mean_windows < rules.settle)
    mean_windows = state.mean_windows + learns
    return replace(
        state,
        windows=fresh,
        sigma=sigma,
        rho=_rho(state, deviation, trusted),
        level=state.level + weight * (known - state.level),
        level_windows=state.level_windows + reported,
        deviation=np.where(reported, deviation, state.deviation),
        mean=np.where(learns, state.mean + (known - state.mean) / np.maximum(mean_windows, 1), state.mean),
        mean_windows=mean_windows,
    )


def _sigma(state: ChannelState, deviations: Floats, rules: Rules) -> float:
    known = deviations[~np.isnan(deviations)]
    if not len(known):
        return state.sigma
    now = TO_SIGMA * median(np.abs(known))
    if np.isnan(state.sigma):
        return now
    if len(known) < _FEW_UNITS and state.windows > _WARM_UP:
        # With few units, one slow unit may enlarge the spread of this window, so limit the growth of sigma.
        now = min(now, 2 * max(state.sigma, rules.least_sigma))
    weight = 1 / min(state.windows + 1, _NOISE_WINDOWS)
    return state.sigma + weight * (now - state.sigma)


def _stepwise_sigma(state: ChannelState, steps: Floats, rules: Rules) -> float:
    """Return the noise, updated from the differences between successive windows. A unit that becomes slow
    changes one difference only, so a large share of suspected units does no harm.

    The noise grows faster than it falls: among few units, noise that grows may look like slowness.
    """
    known = steps[~np.isnan(steps)]
    if not len(known):
        return state.sigma
    now = float(TO_SIGMA * median(np.abs(known)) / np.sqrt(2 * (1 - state.rho)))
    if np.isnan(state.sigma):
        return now
    now = min(now, _MOST_RISE * max(state.sigma, rules.least_sigma))
    if now > state.sigma:
        weight = 1 / min(state.windows, _RISING_WINDOWS)
    else:
        weight = _FALLING if state.windows < _FEW_WINDOWS else 1 / min(state.windows, _NOISE_WINDOWS)
    return state.sigma + weight * (now - state.sigma)


def _rho(state: ChannelState, deviation: Floats, trusted: Bools) -> float:
    """Return the autocorrelation, updated from how often two successive windows deviate to the same side
    (quadrant correlation). Only the sign of a deviation counts, so outliers have little effect.
    """
    both = trusted & ~np.isnan(deviation) & ~np.isnan(state.deviation)
    if not both.any():
        return state.rho
    signs = np.sign(deviation[both]) * np.sign(state.deviation[both])
    now = np.sin(np.pi / 2 * (float(signs.sum()) / len(signs)))
    weight = 1 / min(state.windows + _PRIOR_RHO_WINDOWS, _NOISE_WINDOWS + _PRIOR_RHO_WINDOWS)
    return float(min(max(state.rho + weight * (now - state.rho), 0.0), _MOST_RHO))
