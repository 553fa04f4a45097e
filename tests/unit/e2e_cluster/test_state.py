"""Tests of the state file, of locks and of atomic writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.cluster import files, processes, state
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import ProcessId
from e2e.cluster.state import NodeRecord, State, StateFile


def example() -> State:
    return State(
        identity="dev-0a1b2c",
        name="dev",
        checkout="/checkout",
        block=5,
        phase="up",
        nodes={"node-1": NodeRecord(1), "node-2": NodeRecord(2, cut=True)},
        processes={"etcd": ProcessId(10, 999), "node/node-1": ProcessId(11, 1000)},
        throttled={"uid": {"/sys/fs/cgroup/x": "-1"}},
        options={"nodes": 2, "audit": ""},
        firewall=["-i a -o a -j ACCEPT"],
        templates=["/cache/templates/1"],
    )


def test_a_state_is_unchanged_after_a_write_and_a_read(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "dev-0a1b2c")
    assert file.load() is None
    file.save(example())
    assert file.load() == example()
    assert file.identity == "dev-0a1b2c"


def test_another_format_is_refused() -> None:
    text = json.loads(example().dump()) | {"format": 99}
    with pytest.raises(ClusterError, match="another format"):
        State.parse(json.dumps(text))


def test_two_clusters_never_share_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = state.clusters_root()
    blocks = [
        state.allocate(StateFile(root / f"c{number}"), f"c{number}", [], {}).block for number in range(20)
    ]
    assert len(set(blocks)) == 20
    assert {one.name for one in state.all_states()} == {f"c{number}" for number in range(20)}


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write(path, "old", mode=0o600)
    with pytest.raises(UnicodeEncodeError):
        files.write(path, "\ud800")
    assert path.read_text() == "old"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_created_atomically(tmp_path: Path) -> None:
    final = tmp_path / "final"
    (tmp_path / ".final.left-by-a-killed-tool").mkdir()
    with pytest.raises(RuntimeError), files.building(final) as folder:
        (folder / "half").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with files.building(final) as folder:
        (folder / "whole").touch()
    assert [path.name for path in final.iterdir()] == ["whole"]


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        files.locked(path, deadline=1, what="the first"),
        pytest.raises(ClusterError, match=rf"the second.*{os.getpid()}"),
        files.locked(path, deadline=0, what="the second"),
    ):
        pass
    with files.locked(path, deadline=0, what="the third"):
        path.unlink()
    with files.locked(path, deadline=0, what="after its file was deleted"):
        assert path.exists()


def test_a_process_is_identified_by_its_start_time_and_killed(tmp_path: Path) -> None:
    code = "import sys; print('on', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, processes.MARK: "unit-test"},
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = processes.identify(child.pid)
        assert found is not None and found.alive
        assert found in processes.marked("unit-test")
        assert processes.marked("unit-tes") == []
        stranger = ProcessId(child.pid, found.started + 1)
        assert not stranger.alive
        processes.end([stranger], deadline=5)
        assert found.alive
        processes.end([found], deadline=5)
        assert not found.alive
        assert processes.marked("unit-test") == []
    finally:
        child.kill()
        child.communicate(timeout=5)
