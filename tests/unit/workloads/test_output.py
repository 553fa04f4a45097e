from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.launcher.output import LONGEST_KEPT, LONGEST_LINE, TAIL, LinePrefixer, Tail

TEXT = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\xc3\xa4", b" "]), max_size=60).map(b"".join)


@given(TEXT, st.integers(min_value=1, max_value=7))
def test_every_line_has_a_prefix_and_no_byte_is_lost_for_any_chunks(text: bytes, step: int) -> None:
    prefixer = LinePrefixer(3, 11)
    found = b"".join(prefixer.feed(text[at : at + step]) for at in range(0, len(text), step)) + prefixer.end()
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    assert found == b"".join(b"[3/11] " + line + b"\n" for line in lines)


def test_an_endless_line_is_split() -> None:
    prefixer = LinePrefixer(1, 0)
    found = prefixer.feed(b"x" * (2 * LONGEST_LINE + 5)) + prefixer.end()
    assert [len(line) for line in found.splitlines()] == [6 + LONGEST_LINE, 6 + LONGEST_LINE, 6 + 5]


def test_the_last_state_of_a_progress_bar_is_kept() -> None:
    assert LinePrefixer(1, 0).feed(b"10%\r50%\r100%\r\n") == b"[1/0] 100%\n"


@given(st.lists(st.binary(max_size=300).map(lambda part: part.replace(b"\r", b"")), max_size=30))
def test_a_tail_is_the_end_of_the_output(parts: list[bytes]) -> None:
    tail = Tail(200)
    for part in parts:
        tail.feed(part)
    text = tail.text()
    assert len(text.encode()) <= 200
    assert (
        b"".join(parts).decode("utf-8", "ignore").strip().endswith(text.rsplit("\n", 1)[-1].lstrip("\ufffd"))
    )


def test_a_tail_starts_with_a_whole_line() -> None:
    tail = Tail()
    tail.feed(b"first " * 100 + b"\nsecond\nthird\n")
    assert tail.text(100) == "second\nthird"


ERROR = b"RuntimeError: Error(s) in loading state_dict for GPT: unexpected keys: "


@pytest.mark.parametrize("end", [b"", b"\n", b"\n[rank0]:[W1126] destroy_process_group() was not called\n"])
@pytest.mark.parametrize("step", [1, 700, 100_000])
def test_a_long_line_keeps_its_start_and_end(end: bytes, step: int) -> None:
    tail = Tail()
    text = b"Traceback (most recent call last):\n" + ERROR + b"h.attn.weight, " * 4000 + b"last key" + end
    for at in range(0, len(text), step):
        tail.feed(text[at : at + step])
    for size in (TAIL, TAIL // 2 - 1 + len(end)):
        line = next(line for line in tail.text(size).splitlines() if line.startswith(ERROR.decode()))
        assert line.endswith(", last key")
        assert " ... " in line
        assert len(line) == LONGEST_KEPT


def test_a_tail_keeps_the_last_state_of_a_progress_bar() -> None:
    tail = Tail()
    for percent in range(1000):
        tail.feed(b"\r%d/1000" % percent)
    assert tail.text() == "999/1000"
    tail.feed(b"\r1000/1000\r\nValueError: no more data\r\n")
    assert tail.text() == "1000/1000\nValueError: no more data"
