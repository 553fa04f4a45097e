"""Tests of generated blocks in files that are otherwise written by hand."""

from __future__ import annotations

import pytest

from convoy_crds.generated import with_block

TEXT = "nav:\n  - a\n  # kinds: written by a program\n  - stale\n  # kinds: end\n  - b\n"


def test_a_block_is_replaced_and_the_rest_stays() -> None:
    wanted = TEXT.replace("  - stale\n", "  - x\n  - y\n")
    assert with_block(TEXT, "kinds", ["- x", "- y"]) == wanted
    assert with_block(wanted, "kinds", ["- x", "- y"]) == wanted


@pytest.mark.parametrize("missing", ["  # kinds: written by a program\n", "  # kinds: end\n"])
def test_a_missing_mark_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match="'# kinds: end', once each"):
        with_block(TEXT.replace(missing, ""), "kinds", [])
