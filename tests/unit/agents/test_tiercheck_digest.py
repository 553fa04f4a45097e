"""Tests of the digests of files: for any length, with any number of threads, and in bounded memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from convoy_agents.tiercheck import digest
from convoy_controllers.checkpoint.records import MAX_CHUNK, Chunk


class CountingPool(ThreadPoolExecutor):
    """A thread pool that counts the chunks submitted to it."""

    submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize("length", [1, MAX_CHUNK, 5 * MAX_CHUNK + 7])
def test_threads_compute_the_same_chunks_as_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(digest, "AHEAD", 2)
    data = random.Random(length).randbytes(length)
    path = tmp_path / "file"
    path.write_bytes(data)
    wanted = tuple(
        Chunk(digest.digest(data[at : at + size]), size) for at, size in digest.chunk_spans(length)
    )
    with path.open("rb") as file, ThreadPoolExecutor(3) as pool:
        assert digest.chunks(file.fileno(), length, pool) == wanted
        assert digest.chunks(file.fileno(), length) == wanted


def test_a_truncated_file_ends_the_computation(tmp_path: Path) -> None:
    """The length of the file comes from a rank, so the file may be shorter. The computation must end at the
    first chunk that is missing in the file.
    """
    path = tmp_path / "file"
    path.write_bytes(b"short")
    with path.open("rb") as file, CountingPool(2) as pool:
        with pytest.raises(ValueError, match="the file is truncated"):
            digest.chunks(file.fileno(), 2**40, pool)
        assert pool.submitted <= digest.AHEAD
