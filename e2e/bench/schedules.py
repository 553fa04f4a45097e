"""The checkpoint protocol under a hundred thousand random schedules, and with each of its rules broken."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields

from convoy_controllers.simulate.checkpoints.schedule import play
from convoy_controllers.simulate.checkpoints.truth import Broken
from convoy_controllers.simulate.checkpoints.vaults import Rules
from e2e.bench.figures import Figures, Metric
from e2e.cluster import machine
from e2e.cluster.progress import Progress

NAME, COMMAND = "schedules", "make bench-schedules"
COUNT = 100_000
_AT_ONCE = 500
_PATIENCE = 20_000
"""Schedules after which a broken rule counts as not found."""


@dataclass(frozen=True)
class Share:
    """What came of some schedules."""

    restores: int
    committed: int
    violated: tuple[str, ...]


def bench(count: int, figures: Figures) -> None:
    """Plays `count` schedules, and each broken rule until it is found."""
    progress = Progress()
    shares: list[Share] = []
    with ProcessPoolExecutor(machine.cores()) as pool:
        for share in pool.map(_share, range(0, count, _AT_ONCE)):
            shares.append(share)
            for words in share.violated:
                progress.say(words)
            if len(shares) % 20 == 0:
                progress.say(f"{len(shares) * _AT_ONCE} schedules, {sum(map(_violations, shares))} violated")
        found = {rule: pool.submit(_found, rule) for rule in broken()}
        figures.add(_metric("random schedules played", "schedules"), len(shares) * _AT_ONCE)
        figures.add(_metric("generations committed", "generations"), sum(one.committed for one in shares))
        figures.add(_metric("restores judged", "restores"), sum(one.restores for one in shares))
        figures.add(_metric("schedules that break a promise", "schedules", 0), sum(map(_violations, shares)))
        for rule, future in found.items():
            figures.add(
                _metric(f"broken on purpose, {rule}: found after", "schedules", _PATIENCE), future.result()
            )


def _metric(name: str, unit: str, target: float | None = None) -> Metric:
    return Metric(name, unit, target, kind="simulated")


def broken() -> dict[str, Rules]:
    """The protocol with one of its rules broken, by the rule's name."""
    return {
        one.name: Rules(**{one.name: 1 if one.name == "absent" else False})  # type: ignore[arg-type]
        for one in fields(Rules)
    }


def _violations(share: Share) -> int:
    return len(share.violated)


def _share(first: int) -> Share:
    restores = committed = 0
    violated = []
    for seed in range(first, first + _AT_ONCE):
        try:
            truth = play(seed)
        except AssertionError as error:
            violated.append(f"seed {seed}: {error}")
        else:
            restores, committed = restores + truth.restores, committed + truth.committed
    return Share(restores, committed, tuple(violated))


def _found(rule: str) -> int | None:
    rules = broken()[rule]
    for seed in range(_PATIENCE):
        try:
            play(seed, rules)
        except Broken:
            return seed + 1
        except AssertionError:
            continue
    return None
