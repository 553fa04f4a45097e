"""Plays a run with a random schedule of faults."""

from __future__ import annotations

from convoy_controllers.checkpoint.generation import Tier
from convoy_controllers.simulate.checkpoints.run import Run
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.checkpoints.shard_stores import Machine, Rules
from convoy_controllers.simulate.checkpoints.truth import NoProgress, RunTruth

FAULT_SECONDS = 120.0
"""Seconds during which faults are injected."""
QUIET_SECONDS = 60.0
"""Seconds without faults after FAULT_SECONDS. In this time the job must commit further generations."""
NOTICE_SECONDS = 5.0
"""Seconds until the operator notices that a node is lost."""


def play(seed: int, rules: Rules | None = None, seconds: float = FAULT_SECONDS) -> RunTruth:
    """Play the schedule of a seed, and return the ground truth of the run.

    Raises InvariantViolation if the protocol breaks a guarantee, and NoProgress if commits stop.
    """
    run = Run(seed, _shape(seed), rules)
    rng = run.state.rng
    run.form()
    end = run.state.kernel.now + seconds
    while run.state.kernel.now < end:
        run.state.kernel.run(run.state.kernel.now + rng.expovariate(1 / 6))
        _inject_fault(run)
    _end_faults(run)
    run.state.kernel.run(run.state.kernel.now + 60)
    formation = run.state.current
    if formation is None or not formation.running:
        raise AssertionError("the job does not run 60 s after the last fault")
    saved = dict(run.state.truth.watermarks)
    run.state.kernel.run(run.state.kernel.now + QUIET_SECONDS)
    for tier in (Tier.LOCAL, Tier.PEER):
        if run.state.truth.watermarks.get(tier) == saved.get(tier):
            raise NoProgress(f"no commit at the {tier.value} tier since {saved.get(tier)}")
    # Restart the job with all memory intact, so that the restore must find the newest committed generation.
    run.fail(formation)
    run.state.kernel.run(run.state.kernel.now + 30)
    return run.state.truth


def _shape(seed: int) -> Shape:
    world = 1 + seed % 4
    copies = (1, 2, 0)[seed // 12 % 3]
    segments = (0, 2, 3)[seed % 3]
    return Shape(world + 1 + seed // 4 % 3, world, min(copies, world - 1), segments=segments)


def _inject_fault(run: Run) -> None:
    rng = run.state.rng
    machine = run.state.machines[rng.choice(sorted(run.state.machines))]
    kind = rng.choices(
        ["rank", "node", "agent", "cut", "heal", "store", "all", "cut all", "nothing"],
        [20, 20, 15, 10, 15, 5, 1, 3, 11],
    )[0]
    if kind == "rank" and run.state.current is not None:
        run.fail(run.state.current)
    elif kind == "node":
        _kill(run, machine)
    elif kind == "agent" and machine.up:
        run.restart_agent(machine)
    elif kind == "cut":
        _cut(run, machine)
    elif kind == "heal":
        for one in run.state.machines.values():
            one.cut = False
    elif kind == "store":
        run.state.store_up = not run.state.store_up
    elif kind == "all":
        for one in run.state.machines.values():
            _kill(run, one)
    elif kind == "cut all" and run.state.current is not None:
        for name in run.state.current.members:
            _cut(run, run.state.machines[name])


def _kill(run: Run, machine: Machine) -> None:
    """Cut the power of a node. It comes back later with empty memory."""
    if not machine.powered:
        return
    machine.lose_power()
    run.state.truth.memory_losses += 1
    _notice(run, machine)
    agent_starts = machine.agent_starts

    def boot() -> None:
        if machine.agent_starts == agent_starts:
            machine.powered = True

    run.state.kernel.after(run.state.rng.uniform(5, 60), boot)


def _cut(run: Run, machine: Machine) -> None:
    machine.cut = True
    _notice(run, machine)


def _notice(run: Run, machine: Machine) -> None:
    formation = run.state.current
    if formation is not None and machine.name in formation.members:
        if not machine.powered:
            formation.running = False
        run.state.kernel.after(
            NOTICE_SECONDS, lambda: run.fail(formation) if run.state.current is formation else None
        )


def _end_faults(run: Run) -> None:
    run.state.store_up = True
    for machine in run.state.machines.values():
        machine.cut, machine.powered = False, True
