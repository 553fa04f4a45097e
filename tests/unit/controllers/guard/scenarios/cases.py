"""Scenarios that test the guard: twenty-seven kinds of fault, the jobs that have them, and the expected
results.
"""

from __future__ import annotations

from dataclasses import replace

from tests.unit.controllers.guard.scenarios.expected import Expected, Scenario

from convoy_controllers.guard.sweep.verdict import Outcome, Reason
from convoy_controllers.guard.synthetic import Job
from convoy_controllers.simulate.guard.guarded_fleet import SIXTEEN_NODES, GuardedFleet, Setup
from convoy_controllers.simulate.guard.hardware_faults import HardwareFault
from convoy_controllers.simulate.guard.window_delivery import DeliveryFaults
from convoy_crds.guardpolicy import BreakerState
from convoy_crds.nodehealth import State

PLAIN = SIXTEEN_NODES
LANES = Job(stages=2, replicas=8, lanes=4, per_node=4, seconds=20.0)
"""A job in which each node is one stage of one replica, so that each kind of traffic uses other parts of
the network.
"""
FIVE = frozenset({5})
NOBODY = Expected()
IMBALANCE = frozenset({"Imbalance"})
SLIGHT = {"drain": {"swapCost": "1m"}, "detection": {"leastSlowdownPercent": 3}}
FAST = {"drain": {"swapCost": "20s"}}
TWO_AT_A_TIME = {"budgets": {"fleetPercentPerHour": 10, "jobInterval": "10m", "poolPercent": 10}}
WIDE = {
    "budgets": {
        "poolPercent": 25, "fleetPercentPerHour": 40, "quarantinedPercent": 50, "jobInterval": "1m"
    },
    "drain": {"swapCost": "1m"},
}  # fmt: skip


def culprit(cause: str, other_causes: frozenset[str] = frozenset()) -> Expected:
    """Return the expectation that only hardware 5 is drained, passes through the whole cycle and returns to
    service.
    """
    return Expected(cause, other_causes, drained=FIVE)


def slow(size: float) -> Setup:
    return Setup((HardwareFault("slow", (5,), size),), minutes=60 if size == 0.1 else 44)


def resized(fleet: GuardedFleet) -> None:
    """Run the job, then continue it with a quarter fewer ranks. Windows of the previous incarnation still
    arrive.
    """
    fleet.run_with_job(20)
    training = fleet.training
    assert training is not None
    training.restart(training.nodes[:12], replace(PLAIN, replicas=12))
    for number, one in enumerate(fleet.hardware.values()):
        one.job = one.job if number < 12 else ""
    fleet.run_with_job(40)


def silenced(fleet: GuardedFleet) -> None:
    fleet.run_with_job(6)
    fleet.silence(5)
    fleet.run_with_job(34)


def not_known(fleet: GuardedFleet) -> list[str]:
    """Return an error unless the condition Qualified of hw5 is Unknown. A silent agent proves neither that
    its node is faulty nor that it is healthy.
    """
    values = {one.type: one.status for one in fleet.health("hw5").status.conditions}
    return [] if values["Qualified"] == "Unknown" else [f"hw5 is Qualified={values['Qualified']}"]


def renamed(fleet: GuardedFleet) -> None:
    """Run the job until hw5 is in repair. Then provision the machine again, as another node in another
    rack.
    """
    while fleet.state("hw5") is not State.REPAIRING and fleet.minute < 50:
        fleet.run_with_job(1)
    fleet.rename("hw5", "r9")
    fleet.run_with_job(1)


def known_under_both_names(fleet: GuardedFleet) -> list[str]:
    status = fleet.health("hw5").status
    names = {turn.node for turn in status.history}
    wrong = [] if {"n5", fleet.hardware["hw5"].node} <= names else [f"its history has {names}"]
    return wrong + ([] if len(status.quarantines) == 1 else [f"quarantines: {status.quarantines}"])


def vanished(fleet: GuardedFleet) -> None:
    """Run the job for 30 minutes, until hw5 is suspect, then end the job. The node is swept afterwards and
    passes.
    """
    fleet.run_with_job(30)
    fleet.run_without_job(20)


def swept_once_and_suspect(fleet: GuardedFleet) -> list[str]:
    status = fleet.health("hw5").status
    turns = [(turn.before, turn.after) for turn in status.history]
    wrong = [] if (State.SUSPECT, State.SUSPECT) in turns else [f"it did not stay suspect: {turns}"]
    return wrong + ([] if status.sweeps == 1 else [f"swept {status.sweeps} times"])


def link_is_found(fleet: GuardedFleet) -> list[str]:
    """Run up to 20 pair sweeps and return an error unless one fails exactly the link hw5|hw6. One sweep
    tests only some pairs.
    """
    for _ in range(20):
        if failed := {one.subject for one in fleet.pairs() if one.outcome is Outcome.FAIL}:
            return [] if failed == {"hw5|hw6"} else [f"sweeps of pairs fail {failed}"]
    return ["no sweep of pairs finds it"]


def swept_and_passed(fleet: GuardedFleet) -> list[str]:
    """Return an error unless hw5 was swept exactly once and passed."""
    outcomes = [one.outcome for one in fleet.verdicts.get("hw5", [])]
    return [] if outcomes == [Outcome.PASS] else [f"the sweeps' outcomes are {outcomes}"]


def group_test_finds_it(fleet: GuardedFleet) -> list[str]:
    pairs = {one.subject for one in fleet.pairs() if one.outcome is Outcome.FAIL}
    grouped = {one.subject for one in fleet.group_tests() if one.reason is Reason.SLOW_TOGETHER}
    return [] if (pairs, grouped) == (set(), {"hw5"}) else [f"pairs fail {pairs}, groups {grouped}"]


def corrupt(fleet: GuardedFleet) -> list[str]:
    reasons = {one.reason for one in fleet.verdicts.get("hw5", [])}
    return [] if reasons == {Reason.CORRUPT} else [f"the sweeps' reasons are {reasons}"]


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "1a", "3 % slower is nobody's fault", slow(0.03), Expected(other_causes=frozenset({"Compute"}))
    ),
    Scenario(
        "1b", "5 % slower is at the limit", slow(0.05),
        Expected(other_causes=frozenset({"Compute"}), undetermined=FIVE),
    ),
    Scenario("1c", "10 % slower", slow(0.1), culprit("Compute")),
    Scenario("1d", "20 % slower", slow(0.2), culprit("Compute")),
    Scenario(
        "1e", "50 % slower, and an operator that crashes", replace(slow(0.5), operator_crashes=True),
        culprit("Compute"),
    ),
    Scenario(
        "2", "1 % more each hour",
        Setup(
            (HardwareFault("drift", (5,), 0.24, begins=30, period=800),), replace(PLAIN, seconds=75.0),
            minutes=430, policy=SLIGHT,
        ),
        Expected(other_causes=frozenset({"Compute"}), drained=FIVE),
    ),
    Scenario(
        "3", "bursts of 20 s each 5 minutes",
        Setup(
            (HardwareFault("bursts", (5,), 0.3, begins=1, period=150),),
            replace(PLAIN, replicas=8, seconds=1.4), minutes=8, hours=1,
        ),
        Expected(other_causes=frozenset({"Compute"})),
    ),
    Scenario("4", "thermal sawtooth", Setup((HardwareFault("thermal", (5,), 0.4),)), culprit("Thermal")),
    Scenario(
        "5", "one NVLink down", Setup((HardwareFault("nvlink", (5,), 4.0),), LANES, minutes=54),
        culprit("Communication"),
    ),
    # The job only sees late input, which is no evidence against hardware. Only a sweep finds the cause.
    Scenario(
        "6", "PCIe at half its lanes", Setup((HardwareFault("pcie", (5,), 0.3),), minutes=30),
        Expected("Input", drained=FIVE),
    ),
    Scenario(
        "7", "a NIC 30 % slower", Setup((HardwareFault("nic", (5,), 0.43),), LANES, policy=FAST, minutes=54),
        culprit("Communication"),
    ),
    Scenario(
        "8", "a lossy link", Setup((HardwareFault("link", (5, 6), 1.0),), LANES, minutes=30, hours=2),
        Expected("Communication", further_checks=link_is_found),
    ),
    Scenario(
        "9", "a slow switch of a rack",
        Setup((HardwareFault("uplink", (0,), 1.0),), LANES, minutes=30, hours=2),
        Expected("Communication"),
    ),
    Scenario(
        "10", "slow storage", Setup((HardwareFault("storage", (), 0.3),), minutes=30, hours=2),
        Expected("Input"),
    ),
    Scenario(
        "11", "one slow loader", Setup((HardwareFault("loader", (5,), 0.3),), minutes=30, hours=2),
        Expected("Input", further_checks=swept_and_passed),
    ),
    Scenario(
        "12", "a CPU hog", Setup((HardwareFault("hog", (5,), 0.3),), minutes=30),
        Expected("Host", drained=FIVE),
    ),
    Scenario(
        "13", "collector's pauses", Setup((HardwareFault("pauses", (), 0.3),), minutes=30, hours=2),
        Expected("Host"),
    ),
    Scenario(
        "14", "sequences of all lengths",
        Setup((HardwareFault("sequences", (), 0.2, begins=0),), minutes=30, hours=2),
        Expected("Imbalance"),
    ),
    Scenario(
        "15", "a long last stage", Setup((), replace(PLAIN, last_stage=1.4), minutes=30, hours=2),
        Expected("Imbalance"),
    ),
    Scenario(
        "16", "checkpoints that stall",
        Setup((HardwareFault("checkpoint", (), 2.0, period=20),), minutes=30, hours=2),
        NOBODY,
    ),
    Scenario(
        "17", "a fleet's power cap", Setup((HardwareFault("cap", (), 0.2),), minutes=30, hours=2),
        Expected("CommonMode"),
    ),
    Scenario(
        "18a", "two kinds of hardware", Setup((), replace(PLAIN, classes=2), minutes=30, hours=2),
        Expected(other_causes=IMBALANCE),
    ),
    Scenario(
        "18b", "two kinds of hardware, one of them slow",
        Setup((HardwareFault("slow", (5,), 0.5),), replace(PLAIN, classes=2)),
        culprit("Compute", IMBALANCE),
    ),
    Scenario(
        "19", "two culprits in one column",
        Setup(
            (HardwareFault("slow", (5, 9), 0.3),), Job(stages=4, replicas=8, per_node=2, seconds=16.0),
            minutes=80, policy=TWO_AT_A_TIME,
        ),
        Expected("Compute", drained=frozenset({5, 9})),
    ),
    # Two slow nodes hold one whole replica. Without token counts, the job cannot tell slow nodes from longer
    # samples. Routine sweeps find the nodes once the nodes are idle.
    Scenario(
        "20a", "a whole replica, of known tokens",
        Setup((HardwareFault("slow", (5, 13), 0.3),), replace(PLAIN, tokens=True), minutes=30, hours=45),
        Expected("Compute", drained=frozenset({5, 13})),
    ),
    Scenario(
        "20b", "a whole replica, or its samples",
        Setup((HardwareFault("slow", (5, 13), 0.3),), minutes=30, hours=45),
        Expected("Imbalance", drained=frozenset({5, 13})),
    ),
    Scenario(
        "21", "resized meanwhile",
        Setup((HardwareFault("slow", (5,), 0.2),), delivery=DeliveryFaults(late=0.02)), culprit("Compute"),
        resized,
    ),
    Scenario(
        "22a", "telemetry lost, late, twice, skewed",
        Setup((HardwareFault("slow", (5,), 0.2),), delivery=DeliveryFaults(0.02, 0.02, 0.02, 0.005)),
        culprit("Compute"),
    ),
    Scenario(
        "22b", "no telemetry of a slow node", Setup((HardwareFault("slow", (5,), 0.2),), hours=2),
        Expected(other_causes=frozenset({"Unknown"}), further_checks=not_known), silenced,
    ),
    Scenario(
        "23", "wrong results, as fast as ever",
        Setup(
            (HardwareFault("corrupt", (5,), begins=0, repairable=False),), new_hardware=True,
            policy={"onJoin": "Gate", "sweeps": {"atOncePercent": 25}},
        ),
        Expected(
            drained=FIVE, repeatedly=True, states={5: State.CONDEMNED}, qualified="False",
            further_checks=corrupt,
        ),
    ),
    Scenario(
        "24", "good in pairs, bad among 32",
        Setup(
            (HardwareFault("crowd", (5,), 1.0),), Job(stages=1, replicas=64, per_node=2, seconds=20.0),
            spares=32, minutes=30, hours=2,
        ),
        Expected("Communication", further_checks=group_test_finds_it),
    ),
    Scenario(
        "25", "provisioned again under another name", slow(0.2),
        Expected("Compute", drained=FIVE, further_checks=known_under_both_names), renamed,
    ),
    Scenario(
        "26", "a detector that lies",
        Setup(
            tuple(
                HardwareFault("lie", (number,), 0.2, begins=8 + 14 * at)
                for at, number in enumerate((1, 3, 5, 7, 9))
            ),
            minutes=90, policy=WIDE,
        ),
        Expected(
            drained=frozenset({1, 3, 5, 7}), suspect=frozenset({9}),
            breakers=(BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN),
        ),
    ),
    Scenario(
        "27", "gone before the sweep",
        Setup((HardwareFault("slow", (5,), 0.2, ends=26),), policy={"drain": {"swapCost": "30m"}}, hours=16),
        Expected("Compute", suspect=FIVE, further_checks=swept_once_and_suspect), vanished,
    ),
)  # fmt: skip
