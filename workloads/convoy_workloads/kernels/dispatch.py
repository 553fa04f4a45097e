"""Chooses the fastest instruction set of a kernel whose results agree with the kernel's numpy twin."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from convoy_workloads.kernels import instruction_sets, library
from convoy_workloads.kernels.errors import InvalidInput, KernelError
from convoy_workloads.kernels.instruction_sets import INSTRUCTION_SETS

F = TypeVar("F")
AUTO = "auto"
TWIN = "twin"
"""Name of the numpy implementation, in place of an instruction set."""
COMPARED_SHAPES = 64
"""Shapes for which a kernel is compared with its twin when it is loaded."""


@dataclass(frozen=True, slots=True)
class Kernel(Generic[F]):
    """A kernel: its instruction sets, and the functions that bind and compare it."""

    name: str
    instruction_sets: tuple[str, ...]
    """Names, the fastest first."""
    bind: Callable[[ctypes.CDLL], F]
    """Makes the kernel's function from a loaded library. Raises AttributeError for a missing symbol."""
    compare: Callable[[F], str]
    """Compares a function with the twin for COMPARED_SHAPES shapes. Returns an empty text, or the shape that
    differs, with both results.
    """
    twin: F
    """The numpy implementation with the same signature."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason for which an instruction set is not used."""

    reason: str
    """One of: cpu, off, library, differs. A label of metrics."""
    message: str


@dataclass(frozen=True, slots=True)
class Selection(Generic[F]):
    """The chosen function of a kernel."""

    kernel: str
    instruction_set: str
    """The name of the instruction set, or TWIN."""
    function: F
    rejected: Mapping[str, Rejection] = field(default_factory=dict)
    """Reasons, by name of the instruction set, for all that were tried first."""


_selections: dict[tuple[str, str], Selection[object]] = {}
_lock = threading.RLock()


def select(kernel: Kernel[F], wanted: str = AUTO) -> Selection[F]:
    """Return the function of a kernel, and remember it for this process.

    With `auto`, the first usable instruction set is chosen, and the twin if there is none. The name of an
    instruction set, or `twin`, demands that one. Raises InvalidInput for another name, and KernelError if
    the demanded set cannot be used.
    """
    if wanted not in {AUTO, TWIN, *kernel.instruction_sets}:
        known = ", ".join((AUTO, *kernel.instruction_sets, TWIN))
        raise InvalidInput(f"{kernel.name} has no instruction set {wanted!r}; choose one of: {known}")
    key = (kernel.name, wanted)
    with _lock:
        if key not in _selections:
            _selections[key] = cast("Selection[object]", _select(kernel, wanted))
        return cast("Selection[F]", _selections[key])


def selections() -> tuple[Selection[object], ...]:
    """Return all selections of this process, for status and metrics."""
    with _lock:
        return tuple(_selections.values())


def _select(kernel: Kernel[F], wanted: str) -> Selection[F]:
    if wanted == TWIN:
        return Selection(kernel.name, TWIN, kernel.twin)
    rejected: dict[str, Rejection] = {}
    for name in kernel.instruction_sets if wanted == AUTO else (wanted,):
        found = _try(kernel, name, demanded=wanted != AUTO)
        if not isinstance(found, Rejection):
            return Selection(kernel.name, name, found, rejected)
        rejected[name] = found
        if wanted != AUTO:
            raise KernelError(f"kernel {kernel.name} cannot use {name}: {found.message}")
        if found.reason == "differs":
            library.warn_once(f"kernel {kernel.name} does not use {name}: {found.message}")
    # A missing compiler can be mended, so it comes before other reasons. The last set is the most common one.
    failed = [one.message for one in rejected.values() if one.reason == "library"]
    reasons = failed or [one.message for one in rejected.values() if one.reason == "cpu"][-1:]
    if reasons:
        library.warn_once(f"kernels run as slow numpy code: {reasons[0]}")
    return Selection(kernel.name, TWIN, kernel.twin, rejected)


def _try(kernel: Kernel[F], name: str, *, demanded: bool) -> F | Rejection:
    """Return the function of one instruction set, or the reason for which it cannot be used."""
    known = INSTRUCTION_SETS[name]
    if missing := instruction_sets.missing_flags(name, instruction_sets.cpu_flags()):
        return Rejection("cpu", f"this CPU lacks {', '.join(missing)}")
    if known.off_reason and not demanded:
        return Rejection("off", known.off_reason)
    if known.needs_tile_permission and not instruction_sets.request_tiles():
        return Rejection("cpu", "the operating system does not allow tile registers")
    try:
        function = kernel.bind(library.load(f"{kernel.name}_{name}"))
    except (KernelError, AttributeError) as error:
        return Rejection("library", str(error))
    if difference := kernel.compare(function):
        return Rejection("differs", f"it differs from the numpy twin for {difference}")
    return function
