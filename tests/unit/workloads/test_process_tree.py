from __future__ import annotations

import signal

import pytest

from convoy_workloads.launcher.proc import Process, descendants, parse_stat
from convoy_workloads.launcher.process_tree import Member, filters, lineage, rank_status, successors

BASH, TEE, TRAIN, OTHER = 10, 11, 12, 13
TERM, KILL, OK, SAVED, FAILED = signal.SIGTERM, signal.SIGKILL, 0, 75 << 8, 1 << 8
SHELL_TERM = (128 + signal.SIGTERM) << 8


def member(
    pid: int,
    parent: int,
    *words: str,
    program: str = "",
    session: int = BASH,
    handles: bool = False,
    reads: str = "",
    writes: str = "",
) -> Member:
    words = words or ("bash",)
    return Member(
        Process(pid, words[0], "S", parent, session, session),
        program or words[0],
        tuple(word.encode() for word in words),
        handles,
        reads,
        frozenset(writes.split()),
    )


def group(*members: Member) -> dict[int, Member]:
    return {one.process.pid: one for one in members}


SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(3)")
TRACKER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(7)")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param([member(BASH, 1), member(TRAIN, BASH, "python", "x.py")], {BASH: [TRAIN]}, id="a shell"),
        pytest.param(
            [member(BASH, 1), member(OTHER, BASH), member(TRAIN, OTHER, "python", "x.py")],
            {BASH: [OTHER], OTHER: [TRAIN]},
            id="a subshell, which has its shell's command line",
        ),
        pytest.param(
            [member(BASH, 1), member(TRAIN, BASH, "python", "x.py", session=TRAIN)],
            {BASH: [TRAIN]},
            id="setsid in a shell",
        ),
        pytest.param(
            [
                member(BASH, 1),
                member(TRAIN, BASH, "python", "x.py", writes="pipe:[1]"),
                member(TEE, BASH, "tee", "log", reads="pipe:[1]"),
            ],
            {BASH: [TRAIN]},
            id="a pipeline",
        ),
        pytest.param(
            [member(BASH, 1, "python", "wrapper.py"), member(TRAIN, BASH, "python", "x.py")],
            {BASH: [TRAIN]},
            id="a wrapper in Python",
        ),
        pytest.param(
            [
                member(BASH, 1, "python", "x.py"),
                member(11, BASH, "python", "x.py"),
                member(12, BASH, *SPAWNED),
                member(13, BASH, *TRACKER),
                member(14, BASH, "python", "serve.py", session=14),
            ],
            {},
            id="a program with workers of multiprocessing and a service",
        ),
        pytest.param([], {}, id="nothing could be read"),
    ],
)
def test_successors_of_a_wrapper_are_found(members: list[Member], expected: dict[int, list[int]]) -> None:
    assert successors(group(*members)) == expected


@pytest.mark.parametrize(
    ("tee", "spared"),
    [
        (member(TEE, BASH, "tee", reads="pipe:[1]"), {TEE}),
        (member(TEE, BASH, "tee", reads="pipe:[1]", handles=True), set()),
        (member(TEE, BASH, "tee", reads="pipe:[2]"), set()),
        (member(TEE, BASH, "tee", reads="pipe:[2]", writes="pipe:[2]"), set()),
        (member(TEE, BASH, "tee"), set()),
    ],
    ids=["a filter", "it handles the signal", "of another's output", "of its own output", "of a file"],
)
def test_filters_outlive_the_processes_they_read_from(tee: Member, spared: set[int]) -> None:
    assert filters(group(member(BASH, 1), member(TRAIN, BASH, "python", writes="pipe:[1]"), tee)) == spared


ONE = {BASH: [TRAIN]}
TWO = {BASH: [TRAIN, OTHER]}
CHAIN = {BASH: [OTHER], OTHER: [TRAIN]}


@pytest.mark.parametrize(
    ("below", "ends", "status"),
    [
        pytest.param(ONE, {BASH: TERM, TRAIN: OK}, OK, id="the program saves behind a shell"),
        pytest.param(ONE, {BASH: TERM, TRAIN: SAVED}, SAVED, id="it says so"),
        pytest.param(ONE, {BASH: TERM, TRAIN: FAILED}, FAILED, id="it fails to save"),
        pytest.param(ONE, {TRAIN: SAVED, BASH: TERM}, SAVED, id="it is the first to end"),
        pytest.param(ONE, {TRAIN: SAVED, BASH: 3 << 8}, 3 << 8, id="the shell handles the signal"),
        pytest.param(ONE, {BASH: OK, TRAIN: SAVED}, OK, id="the shell ends well, and first"),
        pytest.param(ONE, {BASH: SHELL_TERM, TRAIN: SAVED}, SAVED, id="a shell's wait was cut short"),
        pytest.param(ONE, {BASH: TERM, TRAIN: TERM}, TERM, id="a program without a handler"),
        pytest.param(ONE, {BASH: TERM}, TERM, id="its end was collected by somebody else"),
        pytest.param(ONE, {BASH: TERM, TRAIN: KILL}, KILL, id="the grace was too short"),
        pytest.param(ONE, {BASH: KILL, TRAIN: SAVED}, KILL, id="something else has killed the shell"),
        pytest.param({}, {BASH: TERM}, TERM, id="a program alone"),
        pytest.param({}, {BASH: SHELL_TERM}, SHELL_TERM, id="it exits so itself"),
        pytest.param(TWO, {BASH: TERM, OTHER: TERM, TRAIN: SAVED}, SAVED, id="beside a helper"),
        pytest.param(TWO, {BASH: TERM, TRAIN: SAVED, OTHER: KILL}, SAVED, id="a helper held out for longest"),
        pytest.param(TWO, {BASH: TERM, TRAIN: SAVED, OTHER: OK}, OK, id="of two the last to end counts"),
        pytest.param(TWO, {BASH: TERM, OTHER: OK, TRAIN: SAVED}, SAVED, id="the other is the last"),
        pytest.param(CHAIN, {BASH: TERM, OTHER: TERM, TRAIN: SAVED}, SAVED, id="a shell in a shell"),
        pytest.param(CHAIN, {BASH: TERM, TRAIN: SAVED}, SAVED, id="the outer has collected the inner"),
        pytest.param(CHAIN, {BASH: TERM, OTHER: SAVED}, SAVED, id="the inner ends as its program does"),
    ],
)
def test_the_exit_code_of_a_terminated_rank(
    below: dict[int, list[int]], ends: dict[int, int], status: int
) -> None:
    assert rank_status(BASH, below, ends) == status


def test_a_helper_in_a_session_of_its_own_does_not_affect_the_program() -> None:
    ends = {BASH: TERM, TRAIN: SAVED, OTHER: OK}
    assert rank_status(BASH, TWO, ends, frozenset({OTHER})) == SAVED
    assert rank_status(BASH, ONE, {BASH: TERM, TRAIN: SAVED}, frozenset({TRAIN})) == SAVED


def test_the_lineage_contains_all_successors_of_the_first_process() -> None:
    assert lineage(BASH, {**CHAIN, TEE: [20]}) == [BASH, OTHER, TRAIN]


@pytest.mark.parametrize(
    ("text", "process"),
    [
        ("7 (bash) S 1 7 6 0 -1 0", Process(7, "bash", "S", 1, 7, 6)),
        ("7 (a) b (c)) Z 1 7 6 0 -1", Process(7, "a) b (c)", "Z", 1, 7, 6)),
        ("7 (bash) S 1", None),
        ("seven (bash) S 1 7 6", None),
        ("", None),
    ],
)
def test_a_process_may_have_any_name(text: str, process: Process | None) -> None:
    assert parse_stat(text) == process


def test_descendants_are_found_at_any_depth() -> None:
    table = {pid: Process(pid, "", "S", parent, 0, 0) for pid, parent in ((2, 1), (3, 2), (4, 3), (5, 1))}
    assert descendants(table, 2) == [3, 4]
    assert descendants(table, 9) == []
