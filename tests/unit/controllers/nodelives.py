"""Random events on a fleet: hardware, nodes, people and the operator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from convoy_controllers.simulate.fleet import SimulatedFleet, foreign
from convoy_crds.nodehealth import State

NODES = 24
LADDER = [
    {"action": "Reset", "owner": "agent", "timeout": "30m"},
    {"action": "Reboot", "owner": "machines", "timeout": "1h"},
]
OTHERS = {"key": "other.example/busy", "effect": "NoSchedule"}
USER_NOTE = {"reason": "a drill", "user": "ops"}
ONE = st.integers(0, NODES - 1).map(lambda number: f"hw{number}")
FEW = st.sets(ONE, min_size=1, max_size=3)
SERVING = {State.UNVERIFIED, State.QUALIFIED, State.PROBATION}


def acting_fleet(count: int = NODES, **policy: Any) -> SimulatedFleet:
    """Return a fleet whose policy has the mode Act, so that it drains nodes."""
    return SimulatedFleet({"mode": "Act", "repair": {"ladder": LADDER}, **policy}, count)


class FleetLife(RuleBasedStateMachine):
    """Random lives of a fleet. Every rule is one event, or lets time pass. The simulated fleet checks all
    guarantees at each write.
    """

    drains = 0
    """Number of drains in all runs."""

    @initialize(
        gate=st.booleans(), spares=st.sampled_from([0, 0, 3]), wide=st.booleans(), routine=st.booleans()
    )
    def start(self, gate: bool, spares: int, wide: bool, routine: bool = False) -> None:
        # Wide budgets permit two drains at a time, so that the budgets of racks and jobs take effect.
        budgets = {
            "reservedSpares": spares,
            **({"poolPercent": 13, "fleetPercentPerHour": 17} if wide else {}),
        }
        sweeps = {"timePercent": 1 if routine else 0}
        self.fleet = acting_fleet(onJoin="Gate" if gate else "Accept", budgets=budgets, sweeps=sweeps)
        for one in self.fleet.hardware.values():
            one.taints.append(dict(OTHERS))
        for number in range(0, NODES, 2):
            self.fleet.hardware[f"hw{number}"].job = f"ns/j{number % 6}"

    def accuse_now(self, names: set[str]) -> None:
        for name in names:
            one = self.fleet.hardware[name]
            one.job = one.job or f"ns/{name}"
            one.accused_since = one.accused_since or self.fleet.kernel.time

    @rule(names=FEW, bad=st.booleans(), share=st.sampled_from([None, 0.1, 0.9]))
    def accused(self, names: set[str], bad: bool, share: float | None) -> None:
        """Accuse nodes, rightly or wrongly, for one hour. That is long enough for the policy to act."""
        self.accuse_now(names)
        for name in names:
            self.fleet.hardware[name].bad, self.fleet.hardware[name].recovered = bad, share
        self.fleet.run(3600, every=300)

    @rule(names=FEW)
    def idle_and_bad(self, names: set[str]) -> None:
        for name in names:
            self.fleet.hardware[name].job, self.fleet.hardware[name].bad = "", True
        self.fleet.run(1800, every=300)

    @rule(names=st.sets(ONE, min_size=NODES // 2))
    def storm(self, names: set[str]) -> None:
        self.accuse_now(names)
        self.fleet.run(900, every=60)

    @rule(minutes=st.sampled_from([1, 5, 20, 60, 240]))
    def time_passes(self, minutes: int) -> None:
        self.fleet.run(minutes * 60, every=60)

    @rule(days=st.sampled_from([1, 15]))
    def days_pass(self, days: int) -> None:
        self.fleet.run(days * 86400, every=7200 * days)

    @rule(names=FEW, job=st.sampled_from(["", "ns/j0", "ns/j1"]))
    def jobs_come_and_go(self, names: set[str], job: str) -> None:
        for name in names:
            self.fleet.hardware[name].job = job

    @rule()
    def nobody_is_accused(self) -> None:
        for one in self.fleet.hardware.values():
            one.accused_since = None

    @rule(names=FEW, bad=st.booleans(), inconclusive=st.booleans())
    def hardware_changes(self, names: set[str], bad: bool, inconclusive: bool) -> None:
        for name in names:
            self.fleet.hardware[name].bad, self.fleet.hardware[name].inconclusive = bad, inconclusive

    @rule(names=FEW, share=st.sampled_from([None, 0.1, 0.9]))
    def actions_do_good_or_not(self, names: set[str], share: float | None) -> None:
        for name in names:
            self.fleet.hardware[name].recovered = share

    @rule(name=ONE, rack=st.sampled_from([None, "r0", "r1"]))
    def provisioned_again(self, name: str, rack: str | None) -> None:
        self.fleet.rename(name, rack)
        self.fleet.hardware[name].taints.append(dict(OTHERS))

    @rule(names=FEW, connected=st.booleans(), present=st.booleans())
    def seen_or_not(self, names: set[str], connected: bool, present: bool) -> None:
        for name in names:
            self.fleet.hardware[name].agent_connected, self.fleet.hardware[name].present = connected, present

    @rule(writes=st.integers(0, 12), again=st.integers(0, 12))
    def the_operator_dies(self, writes: int, again: int) -> None:
        self.fleet.kernel.run(self.fleet.kernel.now + 15)
        self.fleet.reconcile(crash_after=writes)
        self.fleet.reconcile(crash_after=again)

    @rule(name=ONE, hours=st.sampled_from([1, 100]))
    def exempt(self, name: str, hours: int) -> None:
        until = self.fleet.kernel.time + timedelta(hours=hours)
        self.fleet.edit_spec(
            name, condemned=None, exempt={**USER_NOTE, "until": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
        )

    @rule(name=ONE)
    def condemned(self, name: str) -> None:
        self.fleet.edit_spec(name, exempt=None, condemned=USER_NOTE)

    @rule(name=ONE)
    def let_go(self, name: str) -> None:
        self.fleet.edit_spec(name, exempt=None, condemned=None)

    @rule(name=ONE)
    def released(self, name: str) -> None:
        at = f"{self.fleet.kernel.time:%Y-%m-%dT%H:%M:%SZ}"
        self.fleet.edit_spec(name, condemned=None, release={**USER_NOTE, "at": at})

    @rule(mode=st.sampled_from(["Act", "Act", "Act", "Observe"]))
    def mode(self, mode: str) -> None:
        self.fleet.configure(mode=mode)

    def teardown(self) -> None:
        """Remove all causes of trouble. Check that every node then returns to service, except condemned
        nodes.
        """
        if not hasattr(self, "fleet"):
            return
        it = self.fleet
        FleetLife.drains += len(it.drains)
        it.configure(mode="Act", sweeps={"timePercent": 0})
        for name, one in it.hardware.items():
            one.accused_since, one.bad, one.inconclusive, one.present, one.agent_connected = (
                None,
                False,
                False,
                True,
                True,
            )
            one.job, one.recovered = "", None
            it.edit_spec(name, exempt=None, condemned=None)
        it.run(3 * 86400, every=1200)
        left = {name: it.health(name).status for name in it.stored}
        stuck = {
            name: f"{status.state}: {status.message}"
            for name, status in left.items()
            if status.state not in SERVING | {State.CONDEMNED}
        }
        assert not stuck, stuck
        for name, one in it.hardware.items():
            assert foreign(one.taints) == [OTHERS["key"]], name
            assert not one.cordoned
