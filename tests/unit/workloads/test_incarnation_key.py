"""Tests of the file with the key of an incarnation, as a rank reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.runtime.incarnation_key import VARIABLE, KeyUnreadable, read

KEY = bytes(range(32))


def test_a_rank_reads_its_key(tmp_path: Path) -> None:
    file = tmp_path / "incarnation.key"
    file.write_text(KEY.hex() + "\n")
    assert read({VARIABLE: str(file)}) == KEY


def test_there_is_no_key_outside_a_cluster() -> None:
    assert read({}) is None


@pytest.mark.parametrize("text", [None, "", "ab", "not hexadecimal", KEY.hex() + "ff"])
def test_an_unusable_file_is_an_error_without_its_contents(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "incarnation.key"
    if text is not None:
        file.write_text(text)
    with pytest.raises(KeyUnreadable, match=VARIABLE) as raised:
        read({VARIABLE: str(file)})
    assert KEY.hex() not in str(raised.value)
