"""The section with the topology of a job."""

from __future__ import annotations

from nicegui import ui

from convoy_operator.dashboard.core.topology import Box, Mark, TopologyView
from convoy_operator.dashboard.pages.elements import box, set_text, show, text, tone_class
from convoy_operator.dashboard.pages.parts import FactList


class TopologySection:
    """The facts about a job's placement, and its domains, nodes and ranks as nested boxes."""

    def __init__(self) -> None:
        with box("section", aria_labelledby="topology") as self._section:
            text("h2", "Topology", id="topology")
            self._facts = FactList()
            self._waiting = text("p", "", "sum tone-warn")
            self._list = box("ul", "topology", aria_label="Domains, nodes and ranks")
            self._note = text("p", "", "quiet")
        self._shown: tuple[Box, ...] = ()
        show(self._section, False)

    def show(self, found: TopologyView | None) -> None:
        """Show this content. None hides the section."""
        show(self._section, found is not None)
        if found is None:
            return
        self._facts.show(found.facts)
        set_text(self._waiting, found.waiting)
        show(self._waiting, bool(found.waiting))
        set_text(self._note, found.note)
        show(self._note, bool(found.note))
        show(self._list, bool(found.boxes))
        if found.boxes != self._shown:
            self._shown = found.boxes
            self._list.clear()
            with self._list:
                for one in found.boxes:
                    _draw(one)


def _draw(one: Box) -> None:
    with box("li", "domain node" if one.kind == "node" else "domain"):
        with box("p"):
            text("span", one.kind, "quiet")
            _link(text("a", one.name, tone_class(one.tone)), one.href)
            text("span", one.text, "quiet")
        if one.marks:
            with box("ul", "chips"):
                for mark in one.marks:
                    _chip(mark)
        if one.inside:
            with box("ul", "topology"):
                for inner in one.inside:
                    _draw(inner)


def _chip(mark: Mark) -> None:
    with box("li"):
        _link(text("a", mark.text, tone_class(mark.tone, badge=True)), mark.href)


def _link(element: ui.element, href: str) -> None:
    if href:
        element.props["href"] = href
