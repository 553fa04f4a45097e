"""Measures PreLort against the rules that other federations of adapters use, with the same clients and
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_workloads.bench.arms import Arm, Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.prelort import ENGINE, comparison

DIGITS: dict[str, Any] = {"steps": 25}
"""Parameters of the digits. All others are the engine's defaults."""


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: PreLort, the baselines, and zero-padding again as the negative control."""

    def arm(name: str, rule: str, nested: bool = False, equal_passes: bool = False) -> Arm:
        params = {**options["params"], "aggregation": rule, "nested": nested}
        given = {"params": params, "seeds": options["seeds"], "equal_passes": equal_passes}
        return function(name, comparison.mean_scores, given)

    return Arms(
        arm("prelort", "segment", nested=True),
        (
            arm("zero-padding", "zeropad"),
            arm("zero-padding, equal passes", "zeropad", equal_passes=True),
            arm("replication", "replicate"),
            arm("truncation", "truncate"),
            arm("mean of products, SVD", "product"),
        ),
        arm("zero-padding again", "zeropad"),
    )


def measures(options: Mapping[str, Any]) -> list[Measure]:
    """Return the measures: accuracy with the largest and the smallest rank, and processor time."""
    ranks = options["params"].get("ranks", [2, 4, 8, 16])

    def measure(rank: int, which: str) -> Measure:
        return Measure(
            name=f"accuracy with the {which} rank",
            unit="ratio",
            value_of=lambda trial: trial.result[f"accuracy, rank {rank}"],
            higher_is_better=True,
            target=1.0,
        )

    work = Measure(
        name=comparison.PROCESSOR, unit="seconds", value_of=lambda trial: trial.result[comparison.PROCESSOR]
    )
    return [measure(ranks[-1], "largest"), measure(ranks[0], "smallest"), work]


BENCH = Bench(
    sizes={
        "small": {"params": dict(ENGINE.small), "seeds": [1]},
        "full": {"params": DIGITS, "seeds": [1, 2, 3, 4, 5]},
    },
    arms=arms,
    measures=measures,
    equal=(Equality(key="bytes up", name="bytes of the clients' messages"),),
    rounds=5,
)
