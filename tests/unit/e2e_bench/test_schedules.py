"""Tests of the tally of played schedules. It is valid only while the code under test is unchanged."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from e2e.bench.tiercheck.schedules import Tally, digest, read


def test_a_tally_continues_with_the_same_code_and_restarts_with_other_code(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    assert read(path, "a") == Tally("a")
    known = Tally("a", 1000, 7, 9, ("seed 3: why",)) + Tally("", 100, 1, 1)
    assert known == Tally("a", 1100, 8, 10, ("seed 3: why",))
    path.write_text(json.dumps(asdict(known)))
    assert read(path, "a") == known
    assert read(path, "b") == Tally("b")


def test_the_digest_is_stable() -> None:
    assert digest() == digest() and len(digest()) == 64
