"""Tuning: the search for parameters with which a simulator's figure is best.

All arms of an Experiment get the same treatment: the same sampler (TPE of optuna), the same number of trials,
the same blocks, and the same seed of the sampler. A trial whose parameters are invalid counts as a trial. The
search depends on nothing but its input, so it can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from convoy_crds.experiment_arm import ParameterType, TunedParameter
from convoy_crds.experiment_plan import Better
from convoy_crds.field_paths import value_at, with_value
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import find, parsed, run
from convoy_workloads.simulators.simulator import InvalidSimulation

if TYPE_CHECKING:
    import optuna

EDGE = 0.01
"""Share of a range, at each end, in which a value counts as at the edge."""
MAX_ERROR = 300
"""Maximum number of characters of a trial's error in the log."""
_SAMPLER_SEEDS = 2**32
"""Number of seeds that the sampler knows."""


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """The input of a tuning."""

    simulator: str
    params: Mapping[str, Any]
    """Parameters of the simulator before the tuning."""
    search: Sequence[TunedParameter]
    trials: int
    seeds: Sequence[int]
    """Seeds of the blocks that each trial simulates."""
    figure: str
    better: Better
    seed: int
    """Seed of the sampler."""
    perturbations: Sequence[Perturbation | None] = ()
    """Perturbation of each block; empty for undisturbed blocks."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting that the tuning has tried."""

    number: int
    values: Mapping[str, Any]
    """Value of each tuned parameter by its path."""
    figures: tuple[float, ...]
    """The figure in each block; empty if the parameters were invalid."""
    score: float | None
    """Mean of `figures`; None if the parameters were invalid."""
    best: float | None
    """Best score so far; None if no trial had a score."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TunedField:
    """The value that the tuning has chosen for one parameter."""

    path: str
    value: Any
    at_edge: bool
    """True if the value is at the edge of its range, so that a better value may lie outside."""


@dataclass(slots=True)
class TuningLog:
    """All trials of a tuning, in their order."""

    trials: list[Trial] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the log as JSON. The same input of a tuning gives the same text."""
        rows = [asdict(one) for one in self.trials]
        return json.dumps(rows, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the log as JSON."""
        return "sha256:" + hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def parse(text: str) -> TuningLog:
        """Return the log that `to_json` has written."""
        return TuningLog([Trial(**{**one, "figures": tuple(one["figures"])}) for one in json.loads(text)])


class Tuner:
    """A tuning, trial by trial."""

    def __init__(self, plan: TuningPlan, log: TuningLog | None = None) -> None:
        """Prepare the tuning. With the log of an interrupted tuning, it goes on after the log's last trial.

        Raises InvalidSimulation if the plan cannot be carried out.
        """
        import optuna  # noqa: PLC0415 - the import takes long, and the command line loads this module

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        _check(plan)
        self.log = TuningLog()
        self._plan = plan
        self._perturbations = plan.perturbations or [None] * len(plan.seeds)
        self._higher = plan.better is Better.HIGHER
        self._ranges = {one.path: _distribution(one) for one in plan.search}
        self._failed = optuna.trial.TrialState.FAIL
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            sampler = optuna.samplers.TPESampler(seed=plan.seed % _SAMPLER_SEEDS)
        self._study = optuna.create_study(
            direction="maximize" if self._higher else "minimize", sampler=sampler
        )
        if (own := _own_values(plan)) is not None:
            # The arm's own setting is the first trial, so the tuning never ends with a worse one.
            self._study.enqueue_trial(own)
        for known in (log or TuningLog()).trials:
            asked = self._study.ask(self._ranges)
            if known.values != asked.params:
                raise InvalidSimulation("the log of the interrupted tuning belongs to another plan")
            self._record(asked, known)

    def trials(self) -> Iterator[Trial]:
        """Carry out the remaining trials, and yield each one as it ends."""
        while len(self.log.trials) < self._plan.trials:
            asked = self._study.ask(self._ranges)
            trial = self._evaluate(dict(asked.params))
            self._record(asked, trial)
            yield trial

    def best(self) -> Trial:
        """Return the first trial with the best score. Raises InvalidSimulation if no trial had one."""
        scored = [one for one in self.log.trials if one.score is not None]
        if not scored:
            error = self.log.trials[0].error if self.log.trials else "no trial was made"
            raise InvalidSimulation(f"no trial of the tuning has a result: {error}")
        choose = max if self._higher else min
        return choose(scored, key=lambda one: one.score or 0.0)

    def chosen(self) -> list[TunedField]:
        """Return the values of the best trial."""
        values = self.best().values
        return [
            TunedField(one.path, values[one.path], _at_edge(one, values[one.path]))
            for one in self._plan.search
        ]

    def _record(self, asked: optuna.Trial, trial: Trial) -> None:
        if trial.score is None:
            self._study.tell(asked, state=self._failed)
        else:
            self._study.tell(asked, trial.score)
        self.log.trials.append(trial)

    def _evaluate(self, values: Mapping[str, Any]) -> Trial:
        plan, number = self._plan, len(self.log.trials)
        before = self.log.trials[-1].best if self.log.trials else None
        try:
            params = tuned(plan.params, values)
            figures = tuple(
                run(plan.simulator, params, seed, perturbation).figures[plan.figure]
                for seed, perturbation in zip(plan.seeds, self._perturbations, strict=True)
            )
        except InvalidSimulation as error:
            return Trial(number, values, (), None, before, str(error)[:MAX_ERROR])
        score = math.fsum(figures) / len(figures)
        better = max if self._higher else min
        return Trial(number, values, figures, score, score if before is None else better(before, score))


def tuned(params: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with the tuned values. Raises InvalidSimulation for an impossible path."""
    found: Any = dict(params)
    for path, value in values.items():
        try:
            found = with_value(found, path, value)
        except ValueError as error:
            raise InvalidSimulation(str(error)) from error
    return dict(found)


def _check(plan: TuningPlan) -> None:
    simulator = find(plan.simulator)
    if plan.figure not in simulator.figures:
        raise InvalidSimulation(
            f"figure: simulator {plan.simulator} has no figure {plan.figure!r}; "
            f"it has {', '.join(simulator.figures)}"
        )
    if plan.better is Better.NEITHER:
        raise InvalidSimulation("better: must be Higher or Lower for a tuning")


def _choices(parameter: TunedParameter) -> list[Any]:
    """Return the values of a Categorical parameter. A text that is JSON, such as `true` or `5`, stands for
    the JSON value.
    """
    return [_json_or_text(one) for one in parameter.values or ()]


def _json_or_text(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | None) else text


def range_error(parameter: TunedParameter) -> str:
    """Return the reason why the tuning cannot choose from a parameter's range; empty if it can."""
    if parameter.type is ParameterType.CATEGORICAL:
        return "" if parameter.values else f"{parameter.path}: values is empty; name at least one value"
    low, high = _bounds(parameter)
    if parameter.log and low <= 0:
        return f"{parameter.path}: min must be above 0 for a logarithmic scale"
    if parameter.type is ParameterType.INT and math.ceil(low) > math.floor(high):
        return f"{parameter.path}: there is no whole number from {low:g} to {high:g}"
    return ""


def extreme_values(parameter: TunedParameter) -> list[Any]:
    """Return the ends of a parameter's range, or all values of a Categorical parameter."""
    if parameter.type is ParameterType.CATEGORICAL:
        return _choices(parameter)
    low, high = _bounds(parameter)
    return [math.ceil(low), math.floor(high)] if parameter.type is ParameterType.INT else [low, high]


def first_value(parameter: TunedParameter) -> Any:
    """Return one of the values that the tuning may choose."""
    if parameter.type is ParameterType.CATEGORICAL:
        return _choices(parameter)[0]
    low, _ = _bounds(parameter)
    return math.ceil(low) if parameter.type is ParameterType.INT else low


def _distribution(parameter: TunedParameter) -> optuna.distributions.BaseDistribution:
    from optuna import distributions  # noqa: PLC0415

    if wrong := range_error(parameter):
        raise InvalidSimulation(f"search: {wrong}")
    if parameter.type is ParameterType.CATEGORICAL:
        return distributions.CategoricalDistribution(_choices(parameter))
    low, high = _bounds(parameter)
    if parameter.type is ParameterType.INT:
        return distributions.IntDistribution(math.ceil(low), math.floor(high), log=parameter.log)
    return distributions.FloatDistribution(low, high, log=parameter.log)


def _bounds(parameter: TunedParameter) -> tuple[float, float]:
    if parameter.min is None or parameter.max is None:
        raise InvalidSimulation(f"search: {parameter.path}: needs min and max")
    return parameter.min, parameter.max


def _own_values(plan: TuningPlan) -> dict[str, Any] | None:
    """Return the values that the parameters have before the tuning; None if they are no possible result."""
    try:
        body = parsed(find(plan.simulator).params, plan.params, "params").to_dict()
    except InvalidSimulation:
        return None
    own = {one.path: value_at(body, one.path) for one in plan.search}
    return own if all(_within(one, own[one.path]) for one in plan.search) else None


def _within(parameter: TunedParameter, value: Any) -> bool:
    """Return True if a value is one that the tuning may choose."""
    if parameter.type is ParameterType.CATEGORICAL:
        return value in _choices(parameter)
    number = isinstance(value, int if parameter.type is ParameterType.INT else int | float)
    low, high = _bounds(parameter)
    return number and not isinstance(value, bool) and low <= value <= high


def _at_edge(parameter: TunedParameter, value: Any) -> bool:
    """Return True if a value is at the edge of its range. A Categorical parameter has no edges."""
    if parameter.type is ParameterType.CATEGORICAL:
        return False
    low, high = _bounds(parameter)
    if parameter.log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return not low + EDGE * (high - low) < value < high - EDGE * (high - low)
