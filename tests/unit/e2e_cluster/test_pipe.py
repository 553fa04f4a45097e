"""Tests of programs that read what a function writes to a pipe."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from pathlib import Path
from typing import IO

import pytest
from e2e.cluster.errors import CommandError
from e2e.cluster.oci import Store, layer
from e2e.cluster.run import run

MORE_THAN_A_PIPE = 8 << 20
"""Bytes that do not fit into a pipe, not even together with the buffer of its writer."""


def endless(out: IO[bytes]) -> None:
    while True:
        out.write(b"x" * 65536)


def test_a_program_reads_all_that_the_function_writes() -> None:
    content = bytes(range(256)) * (MORE_THAN_A_PIPE // 256)
    digest = run(["sha256sum"], stdin=lambda out: out.write(content))
    assert digest.split()[0] == hashlib.sha256(content).hexdigest()


def test_a_failed_program_shows_its_own_error() -> None:
    with pytest.raises(CommandError, match=r"exit code 7\ncannot import"):
        run(["sh", "-c", "head --bytes=10 >/dev/null; echo cannot import >&2; exit 7"], stdin=endless)


def test_a_program_may_end_before_it_has_read_everything() -> None:
    """A reader of a tar stream ends at the mark of the end, and leaves the padding in the pipe."""
    assert run(["sh", "-c", "head --bytes=3"], stdin=endless) == "xxx"


def test_an_error_of_the_function_is_raised_even_if_the_program_succeeds() -> None:
    def write(out: IO[bytes]) -> None:
        out.write(b"part")
        raise OSError("cannot read the blob")

    for program in ("cat", "false"):
        with pytest.raises(OSError, match="cannot read the blob"):
            run([program], stdin=write)


def test_the_deadline_holds_while_nobody_reads() -> None:
    before = threading.active_count()
    with pytest.raises(CommandError, match=r"took longer than 0\.2 s"):
        run(["sleep", "60"], stdin=endless, deadline=0.2)
    assert threading.active_count() == before


def test_the_deadline_holds_while_a_child_of_the_program_keeps_the_pipe(tmp_path: Path) -> None:
    """`nsenter` has such a child: the program that it runs."""
    pid = tmp_path / "pid"
    script = f"sleep 60 0<&0 >/dev/null 2>&1 & echo $! >{pid}; wait"
    before = threading.active_count()
    try:
        with pytest.raises(CommandError, match="took longer than 1 s"):
            run(["bash", "-c", script], stdin=endless, deadline=1)
        assert threading.active_count() == before
    finally:
        run(["kill", pid.read_text().strip()])


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CommandError, match="is not installed"):
        run(["/no/such/program"], stdin=endless)


def test_an_archive_is_streamed_to_a_program(tmp_path: Path) -> None:
    store = Store(tmp_path / "images", tmp_path)
    store.create()
    image = store.add("convoy/a:1", {"os": "linux"}, [layer({"f": (b"0" * MORE_THAN_A_PIPE, 0o644)})])
    copy = tmp_path / "copy.tar"
    script = 'cat >"$1"'
    run(["sh", "-c", script, "copy", copy], stdin=lambda out: store.write_archive([image], out))
    with tarfile.open(fileobj=io.BytesIO(copy.read_bytes())) as tar:
        sizes = {member.name: member.size for member in tar}
    assert {name for name in sizes if name.startswith("blobs/")} == {
        f"blobs/{digest.replace(':', '/')}" for digest in store.blobs(image)
    }
    assert store.size(store.lacking([image], ())) == sum(
        size for name, size in sizes.items() if name.startswith("blobs/")
    )
