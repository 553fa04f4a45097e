"""Tests that every test that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = {"U": "tests/unit", "E": "e2e/tests"}
NAMED = re.compile(r"(?:\b([IUE]) )?`((?:\w+/)*test_\w+\.py)?(?:::(test_\w+))?`")


@pytest.mark.parametrize(
    ("page", "integration", "fewest"),
    [("failure-matrix", "tests/integration/agents", 50), ("security-claims", "tests/integration", 70)],
)
def test_every_test_named_on_a_page_exists(page: str, integration: str, fewest: int) -> None:
    places, count = {"I": integration, **OTHERS}, 0
    for line in (ROOT / "docs" / f"{page}.md").read_text().splitlines():
        place, path = "", ROOT
        for letter, file, test in NAMED.findall(line):
            if not file and not test:
                continue
            place = letter or place
            if file:
                # If the file name of an integration test has a folder, it is relative to tests/integration.
                # Otherwise it is relative to the page's folder of tests.
                layer = "tests/integration" if place == "I" and "/" in file else places[place]
                path = ROOT / layer / file
                assert path.is_file(), f"{page}: {file}"
            assert not test or f"def {test}(" in path.read_text(), f"{path.name}::{test}"
            count += 1
    assert count > fewest, count
