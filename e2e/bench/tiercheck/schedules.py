"""Plays a hundred thousand random schedules of the checkpoint protocol, and schedules with one rule broken.

The bench takes hours, but may be interrupted: a file keeps a tally of the schedules played. The tally is
valid until the code under test changes.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from convoy_controllers.simulate.checkpoints.schedule import play
from convoy_controllers.simulate.checkpoints.shard_stores import Rules
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster import files, machine
from e2e.cluster.progress import Progress

NAME, COMMAND = "schedules", "make bench-schedules"
COUNT = 100_000
TALLY = files.CHECKOUT / "docs" / "bench" / "schedules.tally.json"
_CODE = ("checkpoint/*.py", "simulate/checkpoints/*.py", "simulate/kernel.py")
"""Files, below convoy_controllers, with the code under test and its simulation."""
_BATCH = 100
_WRITE_EVERY = 1_000
"""Number of schedules between two writes of the tally."""
_MAX_SCHEDULES = 20_000
"""Maximum number of schedules played for each broken rule. If none of them violates a guarantee, the broken
rule counts as not detected.
"""


@dataclass(frozen=True)
class Tally:
    """Counts of all schedules played, from seed 0 on."""

    code: str
    """Digest of the code with which the schedules were played."""
    played: int = 0
    committed: int = 0
    restores: int = 0
    violated: tuple[str, ...] = ()

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.code,
            self.played + other.played,
            self.committed + other.committed,
            self.restores + other.restores,
            (*self.violated, *other.violated),
        )


def bench(count: int, figures: Figures, path: Path = TALLY) -> None:
    """Play schedules until the tally has `count` of them. Then play each broken rule until it is detected."""
    progress = Progress()
    tally = read(path, digest())
    if tally.played:
        progress.report(
            f"{tally.played} schedules were played earlier, {len(tally.violated)} of them found a violation"
        )
    with ProcessPoolExecutor(machine.cores()) as pool:
        for batch in pool.map(_play_batch, range(tally.played, count, _BATCH)):
            for words in batch.violated:
                progress.report(words)
            tally += batch
            if tally.played % _WRITE_EVERY == 0:
                files.write(path, json.dumps(asdict(tally), indent=2) + "\n")
                progress.report(f"{tally.played} schedules, {len(tally.violated)} found a violation")
        found = {rule: pool.submit(_first_violation, rule) for rule in broken_rules()}
        figures.add(_metric("random schedules played", "schedules"), tally.played)
        figures.add(_metric("generations committed", "generations"), tally.committed)
        figures.add(_metric("restores judged", "restores"), tally.restores)
        figures.add(_metric("schedules that break a promise", "schedules", 0), len(tally.violated))
        for rule, future in found.items():
            figures.add(
                _metric(f"broken on purpose, {rule}: found after", "schedules", _MAX_SCHEDULES),
                future.result(),
            )


def digest() -> str:
    """Return the SHA-256 digest of the code under test and its simulation."""
    root = files.CHECKOUT / "controllers" / "convoy_controllers"
    paths = sorted(path for pattern in _CODE for path in root.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def read(path: Path, code: str) -> Tally:
    """Return the tally in the file. It is empty if the file is missing or has the digest of other code."""
    try:
        body = json.loads(path.read_text())
    except FileNotFoundError:
        return Tally(code)
    tally = Tally(**{**body, "violated": tuple(body["violated"])})
    return tally if tally.code == code else Tally(code)


def _metric(name: str, unit: str, target: float | None = None) -> Metric:
    return Metric(name, unit, target, kind="simulated")


def broken_rules() -> dict[str, Rules]:
    """Return, for each rule's name, the protocol's rules with this rule broken."""
    return {
        one.name: Rules(**{one.name: 1 if one.name == "absent" else False})  # type: ignore[arg-type]
        for one in fields(Rules)
    }


def _play_batch(first: int) -> Tally:
    restores = committed = 0
    violated = []
    for seed in range(first, first + _BATCH):
        try:
            truth = play(seed)
        except AssertionError as error:
            violated.append(f"seed {seed}: {error}")
        else:
            restores, committed = restores + truth.restores, committed + truth.committed
    return Tally("", _BATCH, committed, restores, tuple(violated))


def _first_violation(rule: str) -> int | None:
    rules = broken_rules()[rule]
    for seed in range(_MAX_SCHEDULES):
        try:
            play(seed, rules)
        except InvariantViolation:
            return seed + 1
        except AssertionError:
            continue
    return None
