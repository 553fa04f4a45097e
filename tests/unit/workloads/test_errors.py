from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.runtime.errors import (
    DataError,
    Interrupted,
    ParamsError,
    PeerLost,
    StoreAway,
    exit_code_of,
    worst,
)
from convoy_workloads.runtime.process_exit import flush_files


class DistBackendError(RuntimeError):
    """Stands in for torch's error of the same name, because errors are recognised by name."""


GLOO = "[gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:1234"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("x"), 1),
        (ParamsError("x"), 10),
        (DataError("x"), 20),
        (StoreAway("x"), 69),
        (Interrupted(), 75),
        (PeerLost("x"), 76),
        (RuntimeError(GLOO), 76),
        (RuntimeError("Timed out waiting 1800000ms for recv operation to complete"), 76),
        (DistBackendError("The client socket has timed out: socket timeout"), 76),
        (DistBackendError("invalid argument"), 1),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), 1),
        (ConnectionResetError("Connection reset by peer"), 1),
        (SystemExit(), 0),
        (SystemExit(3), 3),
        (SystemExit(-1), 255),
        (SystemExit("sorry"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=str,
)
def test_each_exception_has_an_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("codes", "one"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 75], 75),
        ([75, 76], 76),
        ([76, 69, 75], 69),
        ([76, 137, 76], 137),
        ([1, 10, 137], 10),
        ([20, 1], 20),
        ([127, 75], 127),
    ],
)
def test_the_worst_exit_code_is_that_of_several_ranks(codes: list[int], one: int) -> None:
    assert worst(codes) == one


def test_files_are_flushed_and_other_objects_are_not_asked_for_their_class(tmp_path: Path) -> None:
    """Some objects of torch write a warning when they are asked, at the end of each rank that fails."""
    asked: list[str] = []

    class Lazy:
        def __getattribute__(self, name: str) -> object:
            asked.append(name)
            return object.__getattribute__(self, name)

    objects = [Lazy()]
    with (tmp_path / "log").open("w") as file:
        file.write("last words")
        flush_files()
        assert (tmp_path / "log").read_text() == "last words"
    assert (len(objects), asked) == (1, [])
