"""Tests of the tables of findings in docs/traces.md."""

from __future__ import annotations

import re
from pathlib import Path

from convoy_workloads.traces.findings import Rule

PAGE = Path(__file__).parents[4] / "docs" / "traces.md"


def test_page_explains_every_finding_and_no_other() -> None:
    text = PAGE.read_text()
    tables = text[text.index("## Check\n") : text.index("## Where the time goes")]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", tables, re.MULTILINE)
    shown = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(shown) == sorted(one.value for one in Rule)
