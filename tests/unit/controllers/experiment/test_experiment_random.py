"""Random lives of an Experiment: crashes between two writes, and jobs that fail, disappear or come late."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from convoy_controllers.testing.builders import Crash
from convoy_crds.experiment_schedule import schedule

from .labs import Lab

PARALLELISM = 2
ACTIONS = (
    "step",
    "step",
    "crash",
    "crash",
    "succeed",
    "succeed",
    "fail",
    "vanish",
    "late",
    "restart",
    "gone",
)


class Chaos:
    """An experiment that lives through random actions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lab = Lab(parallelism=PARALLELISM, maxFailedBlocks=10, blocks=2)
        self.lab.register()
        self.values: dict[str, float] = {}
        """Figure of each run that succeeded, by uid of its job."""

    def act(self) -> None:
        """Do something at random, and check what must always hold."""
        lab, runs = self.lab, [name for name in self.lab.active if "-b" in name]
        action = self.random.choice(ACTIONS)
        if action == "crash":
            writes = iter([False] * self.random.randrange(4))
            lab.crash = lambda: next(writes, True)
            with contextlib.suppress(Crash):
                lab.step()
            lab.crash = lambda: False
        elif action == "late":
            old = [name for name in lab.created if "-b" in name and name not in lab.jobs]
            if old and len(runs) < PARALLELISM:
                lab.create(self.random.choice(old))
        elif action == "restart":
            lab.lingering = not lab.lingering
        elif action == "gone":
            lab.finish_deletions()
        elif action in ("succeed", "fail", "vanish") and runs:
            self._end(action, self.random.choice(runs))
        else:
            lab.step()

    def finish(self) -> None:
        """Let everything succeed from now on."""
        self.lab.lingering = False
        for _ in range(60):
            self.lab.finish_deletions()
            self.lab.settle()
            for name in [name for name in self.lab.active if "-b" in name]:
                self._end("succeed", name)
            if any("-result-" in name for name in self.lab.active):
                return
        raise AssertionError("the experiment does not end")

    def _end(self, action: str, name: str) -> None:
        if action == "vanish":
            self.lab.vanish(name)
        elif action == "fail":
            self.lab.end(name, None, "Failed")
        else:
            value = float(len(self.values) + 1)
            self.values[self.lab.jobs[name].uid] = value
            self.lab.end(name, {"figures": {"latePercent": value}})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
@example(631)  # A pending run and a late job together exceeded the parallelism.
def test_every_run_counts_exactly_once_whatever_happens(seed: int) -> None:
    chaos = Chaos(seed)
    lab = chaos.lab
    for _ in range(40):
        before = set(lab.active)
        chaos.act()
        fresh = [name for name in lab.active if name not in before and "-b" in name]
        assert not fresh or len([name for name in lab.active if "-b" in name]) <= PARALLELISM
    chaos.finish()
    blocks = schedule(lab.experiment.spec)
    assert sorted(row.id for row in lab.status.blocks) == [one.id for one in blocks]
    for row in lab.status.blocks:
        seen = [one.arm for one in row.figures] + [one.arm for one in row.failures]
        assert sorted(seen) == sorted(row.arms)
    used = [figure.value for row in lab.status.blocks for figure in row.figures]
    assert len(set(used)) == len(used)
    assert set(used) <= set(chaos.values.values())
    assert lab.status.progress == f"{len(blocks)}/{len(blocks)}"
    attempts = Counter(name.rsplit("-", 1)[0] for name in {name for name in lab.created if "-b" in name})
    assert max(attempts.values()) <= lab.experiment.spec.max_attempts
