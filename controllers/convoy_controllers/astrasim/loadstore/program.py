"""The operations of a workgroup, which follow from phases, access and scope of the flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from convoy_controllers.astrasim.loadstore.algorithms import Phase, phases
from convoy_controllers.astrasim.loadstore.parameters import Access, Setup, Sync


@dataclass(frozen=True, slots=True)
class Move:
    """Stores to (`put`) or loads from peers, line by line. It ends when every line has been acknowledged or
    has arrived, so it is also the fence before a flag.
    """

    peers: tuple[int, ...]
    lines: int
    """Lines for each peer."""
    last: int
    """Bytes of each peer's last line."""
    put: bool
    reduces: bool
    """True if the workgroup reduces each line as it arrives."""


@dataclass(frozen=True, slots=True)
class ReduceLocal:
    """Loads from the own memory, each reduced as it arrives."""

    lines: int


@dataclass(frozen=True, slots=True)
class Signal:
    """A flag for each of the peers."""

    peers: tuple[int, ...]
    phase: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Ends when `count` flags of the phase have arrived."""

    count: int
    phase: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """Ends when all workgroups of the GPU have joined."""


Operation = Move | ReduceLocal | Signal | Wait | Barrier


def active_workgroups(setup: Setup) -> int:
    """Return the workgroups that have at least one line. The others end at once."""
    lines = -(-phases(setup)[0].size // setup.gpu.line)
    return max(1, min(setup.gpu.workgroups, lines))


def program(setup: Setup, workgroup: int) -> tuple[Operation, ...]:
    """Return the operations of a workgroup."""
    make = _PHASES[setup.access]
    found: list[Operation] = []
    for number, phase in enumerate(phases(setup)):
        found += make(setup, workgroup, number, phase)
    return tuple(found)


def slice_of(setup: Setup, phase: Phase, workgroup: int) -> tuple[int, int]:
    """Return the lines for each peer of a workgroup in a phase, and the bytes of the last one."""
    line, groups = setup.gpu.line, active_workgroups(setup)
    lines = -(-phase.size // line)
    first, end = workgroup * lines // groups, (workgroup + 1) * lines // groups
    rest = phase.size - (lines - 1) * line
    return end - first, rest if end == lines else line


def _put(setup: Setup, workgroup: int, number: int, phase: Phase) -> Iterator[Operation]:
    lines, last = slice_of(setup, phase, workgroup)
    yield Move(phase.peers, lines, last, put=True, reduces=False)
    yield from _flags(setup, workgroup, number, phase.peers, joined=True)
    if phase.reduces:
        yield ReduceLocal(lines * len(phase.peers))


def _get(setup: Setup, workgroup: int, number: int, phase: Phase) -> Iterator[Operation]:
    lines, last = slice_of(setup, phase, workgroup)
    yield from _flags(setup, workgroup, number, phase.peers, joined=number > 0)
    sources = tuple(setup.links.gpus - peer for peer in phase.peers)
    yield Move(sources, lines, last, put=False, reduces=phase.reduces)


def _flags(
    setup: Setup, workgroup: int, number: int, peers: tuple[int, ...], joined: bool
) -> Iterator[Operation]:
    """Yield the control path of a phase. `joined`: the flags must cover the work of all workgroups."""
    alone = setup.sync is Sync.WORKGROUP
    if not alone and joined:
        yield Barrier()
    if alone or workgroup == 0:
        yield Signal(peers, number)
        yield Wait(len(peers), number)
    if not alone:
        yield Barrier()


_PHASES: Mapping[Access, Callable[[Setup, int, int, Phase], Iterator[Operation]]] = {
    Access.PUT: _put,
    Access.GET: _get,
}
