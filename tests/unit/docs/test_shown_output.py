"""Tests of the comparison between the output that a page shows and the real output of commands."""

from __future__ import annotations

import pytest
from e2e.docs.shown_output import missing_lines

JOBS = """NAME   PHASE     READY   STEP   %    CHECKPOINT   TIER   RESTARTS   AGE
gpt    Running   2/2     68     34                       0          31s
"""


@pytest.mark.parametrize(
    ("page", "output"),
    [
        (JOBS, JOBS),
        (JOBS, JOBS.replace("68     34 ", "7    3.5").replace("31s", "2m11s").replace("   ", "  ")),
        (JOBS, "a warning\n" + JOBS.replace("\ngpt", "\nother  Pending\ngpt")),
        ("on node node-1, rank 0", "on node node-12, rank 0"),
        ("a ... c", "a b\tb c"),
        ("a   ...   c", "a  c"),
        ("... c", "b c"),
        ("71f4b398776cf0aad03d54d510f8648f  1", "00ffb398776c 1"),
        ("SAVED 2026-03-04T10:12:09Z", "SAVED 2027-01-01T00:00:00.125Z"),
        ("took 0.56 s, in 300ms", "took 12 s, in 1.5s"),
        ("\n\n", ""),
        ("", "anything"),
    ],
)  # fmt: skip
def test_equal_output_may_differ_in_variable_parts(page: str, output: str) -> None:
    assert list(missing_lines(page, output)) == []


@pytest.mark.parametrize(
    ("page", "output", "lines"),
    [
        (JOBS, "", JOBS.splitlines()),
        (JOBS, JOBS.replace("2/2", "1/2"), JOBS.splitlines()[1:]),
        (JOBS, JOBS.replace("Running", "Pending"), JOBS.splitlines()[1:]),
        (JOBS, JOBS.replace("  0  ", "  1  "), JOBS.splitlines()[1:]),
        (JOBS, JOBS.replace("\ngpt", "\nmy-gpt"), JOBS.splitlines()[1:]),
        (JOBS, JOBS.replace("31s", ""), JOBS.splitlines()[1:]),
        (JOBS, JOBS.replace("31s", "31s more"), JOBS.splitlines()[1:]),
        ("one\ntwo", "two\none", ["two"]),
        ("one\ntwo\nthree", "one\nthree", ["two"]),
        ("one\none", "one", ["one"]),
        ("step 12", "step none", ["step 12"]),
        ("rank-1", "rank-2", ["rank-1"]),
        ("a.c", "abc", ["a.c"]),
        ("node-1", "node-x", ["node-1"]),
    ],
)  # fmt: skip
def test_missing_lines_are_found(page: str, output: str, lines: list[str]) -> None:
    assert list(missing_lines(page, output)) == lines
