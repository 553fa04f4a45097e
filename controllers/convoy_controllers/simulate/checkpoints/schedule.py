"""Random schedules: what happens to the nodes of a run, and when."""

from __future__ import annotations

from convoy_controllers.checkpoint.generation import Tier
from convoy_controllers.simulate.checkpoints.run import Run
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.checkpoints.truth import Stuck, Truth
from convoy_controllers.simulate.checkpoints.vaults import Machine, Rules

SECONDS = 120.0
"""Of trouble."""
QUIET_SECONDS = 60.0
"""Without trouble, in which saves must get on."""
NOTICE_SECONDS = 5.0
"""Until the operator knows that a node is lost."""


def play(seed: int, rules: Rules | None = None, seconds: float = SECONDS) -> Truth:
    """One schedule; truth.Broken at the moment a promise does not hold."""
    run = Run(seed, _shape(seed), rules)
    rng = run.world.rng
    run.form()
    end = run.world.kernel.now + seconds
    while run.world.kernel.now < end:
        run.world.kernel.run(run.world.kernel.now + rng.expovariate(1 / 6))
        _trouble(run)
    _calm(run)
    run.world.kernel.run(run.world.kernel.now + 60)
    formation = run.world.now
    if formation is None or not formation.running:
        raise AssertionError("the job does not come back")
    saved = dict(run.world.truth.marks)
    run.world.kernel.run(run.world.kernel.now + QUIET_SECONDS)
    for tier in (Tier.LOCAL, Tier.PEER):
        if run.world.truth.marks.get(tier) == saved.get(tier):
            raise Stuck(f"nothing gets to the {tier.value} tier any more: {saved.get(tier)}")
    # The last word: all memory of the ranks' nodes stays, and what was promised must be there.
    run.fail(formation)
    run.world.kernel.run(run.world.kernel.now + 30)
    return run.world.truth


def _shape(seed: int) -> Shape:
    world = 1 + seed % 4
    copies = (1, 2, 0)[seed // 12 % 3]
    segments = (0, 2, 3)[seed % 3]
    return Shape(world + 1 + seed // 4 % 3, world, min(copies, world - 1), segments=segments)


def _trouble(run: Run) -> None:
    rng = run.world.rng
    machine = run.world.machines[rng.choice(sorted(run.world.machines))]
    kind = rng.choices(
        ["rank", "node", "agent", "cut", "heal", "store", "all", "cut all", "nothing"],
        [20, 20, 15, 10, 15, 5, 1, 3, 11],
    )[0]
    if kind == "rank" and run.world.now is not None:
        run.fail(run.world.now)
    elif kind == "node":
        _kill(run, machine)
    elif kind == "agent" and machine.up:
        run.restart_agent(machine)
    elif kind == "cut":
        _cut(run, machine)
    elif kind == "heal":
        for one in run.world.machines.values():
            one.cut = False
    elif kind == "store":
        run.world.store_up = not run.world.store_up
    elif kind == "all":
        for one in run.world.machines.values():
            _kill(run, one)
    elif kind == "cut all" and run.world.now is not None:
        for name in run.world.now.members:
            _cut(run, run.world.machines[name])


def _kill(run: Run, machine: Machine) -> None:
    """The node dies, and comes back with empty memory."""
    if not machine.powered:
        return
    machine.die()
    run.world.truth.lost += 1
    _notice(run, machine)
    life = machine.life

    def boot() -> None:
        if machine.life == life:
            machine.powered = True

    run.world.kernel.after(run.world.rng.uniform(5, 60), boot)


def _cut(run: Run, machine: Machine) -> None:
    machine.cut = True
    _notice(run, machine)


def _notice(run: Run, machine: Machine) -> None:
    formation = run.world.now
    if formation is not None and machine.name in formation.members:
        if not machine.powered:
            formation.running = False
        run.world.kernel.after(
            NOTICE_SECONDS, lambda: run.fail(formation) if run.world.now is formation else None
        )


def _calm(run: Run) -> None:
    run.world.store_up = True
    for machine in run.world.machines.values():
        machine.cut, machine.powered = False, True
