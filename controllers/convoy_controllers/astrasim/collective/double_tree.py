"""The double binary tree: a chunk goes up one tree, is reduced on the way, and comes down.

Inner ranks pay the reduction on the way down too, and end before the leaves have received.
"""

from __future__ import annotations

from collections.abc import Callable

from convoy_controllers.astrasim.collective.chunk import Site
from convoy_controllers.astrasim.collective.insertions import Insertion
from convoy_controllers.astrasim.collective.phase import TreePhase

_OWN = Insertion(to_memory=True, reduced=False)
_UNREDUCED = Insertion(to_memory=False, reduced=False)
_FIRST_CHILD = Insertion(to_memory=False, reduced=True)
_REDUCED = Insertion(to_memory=False, reduced=True, sent_back=True)


class DoubleTree:
    """A phase on a binary tree."""

    __slots__ = ("_children", "_finished", "_missing", "_parent", "_passes", "_site", "_size", "_tag")

    def __init__(self, site: Site, tag: int, phase: TreePhase, finished: Callable[[], None]) -> None:
        self._site = site
        self._tag = tag
        self._finished = finished
        self._size = phase.size
        self._parent = phase.place.parent
        self._children = phase.place.children
        self._missing = len(self._children)
        """Children whose data has not arrived."""
        self._passes = len(self._children)
        """Passes through the memory that must end before the data of all children is reduced."""

    def start(self) -> None:
        """Start the phase."""
        if not self._children:
            self._insert(_OWN, self._go_on)
        for child in self._children:
            self._receive(child, self._from_child)

    def _from_child(self, _: None) -> None:
        self._missing -= 1
        self._insert(_REDUCED if self._missing == 0 else _FIRST_CHILD, self._reduced)

    def _reduced(self, _: None) -> None:
        self._passes -= 1
        if not self._passes:
            self._go_on(None)

    def _go_on(self, _: None) -> None:
        """Send the data up, or down if the rank is the root."""
        if self._parent is None:
            self._send_down(None)
            return
        self._send(self._parent)
        self._receive(self._parent, self._from_parent)

    def _from_parent(self, _: None) -> None:
        if self._children:
            self._insert(_REDUCED, self._send_down)
        else:
            self._insert(_UNREDUCED, lambda _: self._finished())

    def _send_down(self, _: None) -> None:
        for child in self._children:
            self._send(child)
        self._finished()

    def _insert(self, insertion: Insertion, done: Callable[[None], None]) -> None:
        # A tree never uses the shorter delay of small groups.
        self._site.endpoint.insert(insertion, self._size, self._site.endpoint.fixed, done)

    def _send(self, peer: int) -> None:
        self._site.transport.send((self._tag, self._site.rank, peer, self._size))

    def _receive(self, peer: int, received: Callable[[None], None]) -> None:
        self._site.transport.receive((self._tag, peer, self._site.rank, self._size), received, None)
