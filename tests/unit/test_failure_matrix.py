"""docs/failure-matrix.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = {"I": "tests/integration/agents", "U": "tests/unit", "E": "e2e/tests"}
NAMED = re.compile(r"(?:\b([IUE]) )?`((?:\w+/)*test_\w+\.py)?(?:::(test_\w+))?`")


def test_every_test_that_is_named_is_there() -> None:
    count = 0
    for line in (ROOT / "docs" / "failure-matrix.md").read_text().splitlines():
        place, path = "", ROOT
        for letter, file, test in NAMED.findall(line):
            if not file and not test:
                continue
            place = letter or place
            path = ROOT / PLACES[place] / file if file else path
            assert not test or f"def {test}(" in path.read_text(), f"{path.name}::{test}"
            count += 1
    assert count > 50, count
