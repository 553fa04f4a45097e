"""Tests of `USED_ELSEWHERE`. It lists the rights that the e2e tests in CI do not use, but other tests do.

Each listed right must name a reason and an existing test.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.drive.unused_rights import USED_ELSEWHERE
from e2e.rights import UsedElsewhere

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("entry", USED_ELSEWHERE, ids=str)
def test_a_listed_right_has_a_reason_and_a_test(entry: UsedElsewhere) -> None:
    file, _, test = entry.test.partition("::")
    assert f"def {test}(" in (ROOT / file).read_text()
    assert len(entry.why.split()) > 3
