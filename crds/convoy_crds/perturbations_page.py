"""Writes the table of perturbations into its page: `python -m convoy_crds.perturbations_page [--check]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from convoy_crds.enum_docs import enum_docs
from convoy_crds.generated import write_or_check
from convoy_crds.perturbations import PERTURBATIONS, Backend, PerturbationKind

PAGE = Path(__file__).parents[2] / "docs" / "perturbations.md"
BEGIN = "<!-- table: written by python -m convoy_crds.perturbations_page -->"
END = "<!-- table: end -->"


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| kind | effect | unit | range | backends | measured on pods |"
    yield "|---|---|---|---|---|---|"
    docs = enum_docs([str(kind) for kind in PerturbationKind])
    for one in PERTURBATIONS:
        backends = ", ".join(str(backend) for backend in Backend if backend in one.backends)
        effect = docs[one.kind.value].partition(" Magnitude:")[0]
        span = f"{one.least:g} to {one.most:,.10g}" + (", whole" if one.whole else "")
        yield f"| `{one.kind}` | {effect} | {one.unit} | {span} | {backends} | {one.measured} |"


def with_table(page: str) -> str:
    """Return the page with the present table between its two comments. Raises ValueError without them."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    if not old:
        raise ValueError(f"the page needs the comments {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n" + "\n".join(table()) + f"\n{END}{after}"


def main() -> None:
    """Write the page. With --check only check that it is up to date."""
    write_or_check({PAGE: with_table(PAGE.read_text())}, "convoy_crds.perturbations_page")


if __name__ == "__main__":
    main()
