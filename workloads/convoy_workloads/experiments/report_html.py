"""The report as one HTML file without scripts and without other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_hash import digest
from convoy_workloads.experiments.plots import Plot, curves, forest
from convoy_workloads.experiments.result import Result
from convoy_workloads.experiments.tables import Table, summary, tables

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 70rem; margin: 2rem auto }
body { padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
th, td { border: 1px solid #d0d7de; padding: 4px 8px; text-align: left; vertical-align: top }
th { background: #f6f8fa }
code { background: #f6f8fa; overflow-wrap: anywhere }
figure { margin: 1rem 0 } svg { max-width: 100%; height: auto; background: #fff }
.bad { background: #ffebe9 } .good { background: #dafbe1 }
"""
_CLASSES = {
    "Supported": "good",
    "passed": "good",
    "Contradicted": "bad",
    "ComparatorCollapsed": "bad",
    "FAILED": "bad",
}


def html(plan: Mapping[str, Any], result: Result, drawn: bool = True) -> str:
    """Return the report of a result. `drawn`: False to leave the plots empty."""
    title, spec = f"Experiment {result.experiment}", ExperimentSpec.model_validate(plan["spec"])
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *_paragraphs(summary(plan, result)),
            f"<p>Digest of result.json: <code>{digest(result.document())}</code></p>",
            *_plots(forest(spec, result), drawn),
            *[line for table in tables(plan, result) for line in _table(table)],
            *_plots(curves(spec, result), drawn),
            "</body></html>",
            "",
        ]
    )


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yield the lines of the summary. A line that begins with a dash is an item of a list."""
    items = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    yield from (f"<p><strong>{_code(line)}</strong></p>" for line in lines if line and line[:2] != "- ")
    yield f"<ul>{''.join(f'<li>{_code(item)}</li>' for item in items)}</ul>"


def _code(text: str) -> str:
    """Return HTML for a text in which back-quotes enclose code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _plots(found: list[Plot], drawn: bool) -> Iterator[str]:
    for title, draw in found:
        svg = draw() if drawn else ""
        yield f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"


def _table(table: Table) -> Iterator[str]:
    yield f"<h2>{escape(table.title)}</h2>"
    if table.note:
        yield f"<p>{escape(table.note)}</p>"
    if not table.rows:
        yield f"<p>{escape(table.empty)}</p>"
        return
    yield f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in table.columns)}</tr>"
    for row in table.rows:
        yield f"<tr>{''.join(_cell(cell) for cell in row)}</tr>"
    yield "</table>"


def _cell(text: str) -> str:
    found = _CLASSES.get(text)
    return f'<td class="{found}">{escape(text)}</td>' if found else f"<td>{escape(text)}</td>"
