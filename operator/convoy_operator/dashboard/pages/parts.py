"""Elements that the job page and the node page share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from convoy_crds.goodput import Cause
from convoy_operator.dashboard.core.job import Fact, Share
from convoy_operator.dashboard.core.rows import Column, Tone
from convoy_operator.dashboard.pages.elements import (
    box,
    set_attribute,
    set_classes,
    set_text,
    show,
    text,
    tone_class,
)
from convoy_operator.dashboard.pages.table import Table

_CAUSES = frozenset(Cause)


def table_section(
    title: str, key: str, columns: tuple[Column, ...], empty: str, used: Callable[[], None]
) -> Table:
    """Create a section with a table, and return the table. `key` is the id of the section's heading, and
    `used` is called when the user works with the table.
    """
    with box("section", aria_labelledby=key):
        text("h2", title, id=key)
        return Table(title, columns, empty, used=used)


class FactList:
    """A list of labels with their values."""

    def __init__(self) -> None:
        self._list = box("dl", "facts")
        self._known: list[tuple[ui.element, TextElement, TextElement]] = []

    def show(self, facts: Sequence[Fact]) -> None:
        """Show these facts."""
        while len(self._known) > len(facts):
            self._known.pop()[0].delete()
        with self._list:
            while len(self._known) < len(facts):
                with box("div") as group:
                    label = text("dt")
                    with box("dd"):
                        self._known.append((group, label, text("a")))
        for (_, name, value), fact in zip(self._known, facts, strict=True):
            set_text(name, fact.label)
            set_text(value, fact.text)
            set_classes(value, tone_class(fact.tone))
            set_attribute(value, "href", fact.href or None)


class Chips:
    """A total, and one badge for each group with its label and its number of objects."""

    def __init__(self, label: str) -> None:
        with box("div", "counts"):
            self._total = text("strong")
            self._list = box("ul", "chips", aria_label=label)
        self._known: list[tuple[ui.element, TextElement]] = []

    def show(self, total: str, counts: Mapping[str, int], tones: Mapping[Any, Tone]) -> None:
        """Show the total and the number of objects in each group."""
        set_text(self._total, total)
        while len(self._known) > len(counts):
            self._known.pop()[0].delete()
        with self._list:
            while len(self._known) < len(counts):
                with box("li") as item:
                    self._known.append((item, text("span")))
        for (_, chip), (name, number) in zip(self._known, counts.items(), strict=True):
            set_text(chip, f"{number} {name}")
            set_classes(chip, tone_class(tones.get(name, Tone.PLAIN), badge=True))


class StackedBar:
    """A stacked bar with a legend."""

    def __init__(self, label: str, empty: str) -> None:
        self._bar = box("div", "stack", role="img", aria_label=label)
        self._legend = box("ul", "legend")
        self._empty = text("p", empty, "empty")
        self._shown: tuple[Share, ...] | None = None
        self._parts: list[tuple[ui.element, TextElement]] = []

    def show(self, shares: Sequence[Share]) -> None:
        """Show these shares."""
        found = tuple(shares)
        if found == self._shown:
            return
        causes = [one.cause for one in self._shown or ()]
        self._shown = found
        show(self._empty, not found)
        if [one.cause for one in found] != causes:
            self._build(found)
        for (part, legend), one in zip(self._parts, found, strict=True):
            part.style(f"flex-grow: {max(one.share, 0.002):.4f}")
            set_text(legend, f"{one.cause}: {one.text}")

    def _build(self, found: Sequence[Share]) -> None:
        self._bar.clear()
        self._legend.clear()
        self._parts = []
        for one in found:
            # Make CSS classes only of known causes, because a status may contain any text.
            colour = f"cause cause-{one.cause}" if one.cause in _CAUSES else "cause"
            with self._bar:
                part = box("span", colour)
            with self._legend, box("li"):
                box("span", f"dot {colour}", aria_hidden="true")
                self._parts.append((part, text("span")))
