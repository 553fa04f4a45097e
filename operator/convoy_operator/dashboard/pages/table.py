"""A table that updates row by row, so that the focus and the scroll position do not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nicegui import ui

from convoy_operator.dashboard.core.formatting import counted
from convoy_operator.dashboard.core.rows import Choice, Column, Row, arrange
from convoy_operator.dashboard.pages.components import Field
from convoy_operator.dashboard.pages.components.table_body import TableBody
from convoy_operator.dashboard.pages.elements import box, button, set_attribute, set_text, show, text

PAGE = 50
"""Number of rows on a page of a table."""


def _class(column: Column) -> str:
    return "number" if column.number else "wide" if column.wide else ""


@dataclass(frozen=True, slots=True)
class Filters:
    """Configuration of a table's filters by words and by group."""

    start: Choice
    """The choice with which the table starts."""
    chosen: Callable[[Choice], None]
    """Function to call with each new choice of the user."""


class Table:
    """A table with sortable columns, filters and pages."""

    def __init__(
        self,
        label: str,
        columns: Sequence[Column],
        empty: str,
        *,
        used: Callable[[], None] = lambda: None,
        filters: Filters | None = None,
    ) -> None:
        """Build the table. `empty` is the text to show without rows. `used` is called at each action of the
        user.
        """
        self._columns = columns
        self.empty = empty
        """Text to show instead of rows if there are none. A new text appears at the next update."""
        self._used = used
        self._choice = filters.start if filters else Choice()
        self._chosen = filters.chosen if filters else lambda _: None
        self._rows: Sequence[Row] = ()
        self._words: Field | None = None
        with box("div", "table-box"):
            if filters:
                self._filters(label)
            self._scroll = box("div", "scroll", tabindex="0", role="region", aria_label=label)
            with self._scroll, box("table"):
                text("caption", label, "unseen")
                with box("thead"), box("tr"):
                    self._heads = [self._head(number) for number in range(len(columns))]
                self._body = TableBody(columns)
            self._note = text("p", empty, "empty")
            self._pager(label)

    def _filters(self, label: str) -> None:
        with box("div", "filters", role="search", aria_label=f"Filter: {label}"):
            self._words = Field(
                f"Filter {label} by words",
                self._filter_words,
                hint="Filter by words",
                start=self._choice.words,
            )
            self._groups = Field(
                f"Filter {label} by state",
                self._filter_group,
                choices=[("", "All")],
                start=self._choice.group,
            )
            self._count = text("span", "", "count", role="status")

    def _head(self, number: int) -> ui.element:
        column = self._columns[number]
        with box("th", _class(column), scope="col", aria_sort="none") as head:
            button(column.label, lambda: self._sort(number))
        return head

    def _pager(self, label: str) -> None:
        with box("nav", "pager", aria_label=f"Pages: {label}") as self._pages:
            self._previous_button = button("Previous", lambda: self._turn_page(-1))
            self._range = text("span", "", role="status")
            self._next_button = button("Next", lambda: self._turn_page(1))

    def _sort(self, number: int) -> None:
        descending = self._choice.column == number and not self._choice.descending
        self._choose(replace(self._choice, column=number, descending=descending, page=0))

    def _turn_page(self, by: int) -> None:
        self._choose(replace(self._choice, page=self._choice.page + by))

    def _filter_words(self, words: str) -> None:
        self._choose(replace(self._choice, words=words, page=0))

    def _filter_group(self, group: str) -> None:
        self._choose(replace(self._choice, group=group, page=0))

    def _choose(self, choice: Choice) -> None:
        self._used()
        self._choice = choice
        self._draw()
        self._chosen(self._choice)

    def show(self, rows: Sequence[Row], groups: dict[str, int] | None = None) -> None:
        """Show the rows. `groups` holds the number of rows in each group."""
        self._rows = rows
        if groups is not None and self._words is not None:
            # Keep the chosen group in the list even if it has no rows.
            chosen = {self._choice.group: 0} if self._choice.group else {}
            offered = {**chosen, **groups}
            counted = [(group, f"{group} ({number})") for group, number in offered.items()]
            self._groups.set_choices([("", f"All ({len(rows)})"), *counted])
        self._draw()

    def _draw(self) -> None:
        found = arrange(self._rows, self._choice, PAGE)
        self._choice = replace(self._choice, page=found.page)
        self._body.show(found.rows)
        for number, head in enumerate(self._heads):
            order = "descending" if self._choice.descending else "ascending"
            set_attribute(head, "aria-sort", order if number == self._choice.column else "none")
        show(self._scroll, bool(found.rows))
        show(self._note, not found.rows)
        set_text(self._note, "No rows match the filter." if found.total else self.empty)
        if self._words is not None:
            part = "" if found.matching == found.total else f"{found.matching} of "
            set_text(self._count, f"{part}{counted(found.total, 'row')}")
        show(self._pages, found.pages > 1)
        first = found.page * PAGE
        set_text(self._range, f"{first + 1} to {first + len(found.rows)} of {found.matching}")
        set_attribute(self._previous_button, "disabled", found.page == 0 or None)
        set_attribute(self._next_button, "disabled", found.page == found.pages - 1 or None)
