"""Settings, token, notice and members file of Ray nodes. Nothing here imports Ray."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from convoy_workloads.ray_cluster import notice, private, token, worker
from convoy_workloads.ray_cluster.settings import MIN_STORE_BYTES, NodeSettings, arguments, environment
from convoy_workloads.runtime.incarnation_key import KeyUnreadable

HEAD = NodeSettings("10.0.0.1", "10.0.0.1", Path("/tmp/ray"), Path("/tmp/ray/token"), slots=0)
NODE = replace(HEAD, address="10.0.0.2", slots=2)


def test_head_and_worker_have_fixed_ports_and_their_own_address() -> None:
    head, node = arguments(HEAD), arguments(NODE)
    assert "--head" in head and "--port=6379" in head and "--num-cpus=0" in head
    assert "--head" not in node and "--address=10.0.0.1:6379" in node and "--num-cpus=2" in node
    for words in (head, node):
        assert {"--node-manager-port=8077", "--object-manager-port=8076", "--block"} <= set(words)


def test_a_worker_node_tells_when_its_pod_started() -> None:
    assert "--labels=convoy-since=1234" in arguments(replace(NODE, since=1234.4))
    assert not [word for word in arguments(HEAD) if word.startswith("--labels")]


def test_the_environment_demands_a_token_and_drops_foreign_settings_of_ray() -> None:
    found = environment(NODE, {"PATH": "/bin", "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "secret"})
    assert found["PATH"] == "/bin" and found["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN" not in found and found["RAY_AUTH_TOKEN_PATH"] == "/tmp/ray/token"
    assert found["RAY_health_check_failure_threshold"] == "4"


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", ""])
def test_a_loopback_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be an address that other nodes reach"):
        replace(NODE, address=address)


def test_a_store_that_ray_would_refuse_is_refused() -> None:
    with pytest.raises(ValueError, match="larger /dev/shm"):
        replace(NODE, store_bytes=MIN_STORE_BYTES - 1)


def test_the_token_depends_on_the_jobs_key_and_only_the_user_reads_it(tmp_path: Path) -> None:
    key = tmp_path / "job.key"
    key.write_text("ab" * 32 + "\n")
    folder = tmp_path / "ray" / "files"
    found = token.write(folder, token.job_key({token.KEY_VARIABLE: str(key)}))
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert found.read_text() == token.derive(b"\xab" * 32) != token.derive(b"\xac" * 32)
    assert token.write(folder, b"\xac" * 32).read_text() == token.derive(b"\xac" * 32)


def test_without_a_key_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(token.NoKey, match="runs only in pods of a TrainingJob"):
        token.job_key({})
    with pytest.raises(KeyUnreadable, match=token.KEY_VARIABLE):
        token.job_key({token.KEY_VARIABLE: str(tmp_path / "absent")})


def test_actors_read_the_notice_of_their_pod(tmp_path: Path) -> None:
    variables = {notice.VARIABLE: str(tmp_path / notice.FILE)}
    assert notice.deadline(variables) is None and notice.deadline({}) is None
    notice.write(tmp_path, 1234.5)
    assert notice.deadline(variables) == 1234.5


def test_the_head_is_the_pod_of_rank_0(tmp_path: Path) -> None:
    path = tmp_path / "members.json"
    variables = {worker.MEMBERS_FILE: str(path)}
    members = [{"rank": 2, "address": "10.0.0.9"}, {"rank": 0, "address": "10.0.0.7"}]
    path.write_text(json.dumps({"incarnation": 3, "members": members}))
    assert worker.head_place(variables) == worker.HeadPlace("10.0.0.7", 3)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"members": []}', '{"members": [{"rank": 0}]}'])
def test_a_members_file_without_rank_0_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "members.json"
    path.write_text(text)
    with pytest.raises(worker.NoHead, match="does not name the pod of rank 0"):
        worker.head_place({worker.MEMBERS_FILE: str(path)})


def test_outside_an_independent_role_the_message_names_the_way_out() -> None:
    with pytest.raises(worker.NoHead, match="membership Independent, or give --head"):
        worker.head_place({})


def test_processes_of_a_node_are_told_apart() -> None:
    lines = [(b"/bin/raylet", b"--node_id=abc", b"x"), (b"ray::IDLE", b""), (b"ray::SpotActor.run",)]
    assert private.node_id(lines) == "abc" and private.node_id(lines[1:]) is None
    assert [private.is_actor(one) for one in lines] == [False, False, True]


def test_another_version_of_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "version", lambda name: "2.61.0")
    with pytest.raises(private.OtherRay, match=r"needs ray==2\.60\.0"):
        private.check_version()


def test_the_pins_of_ray_agree() -> None:
    root = Path(__file__).parents[3]
    pin = f"ray=={private.RAY_VERSION}"
    assert f'"{pin}"' in (root / "pyproject.toml").read_text()
    assert pin in (root / "constraints.txt").read_text().splitlines()


def test_nothing_imports_ray_before_it_is_needed() -> None:
    code = "import sys, convoy_workloads.ray_cluster.worker as w, convoy_workloads.ray_cluster.head as h; "
    subprocess.run([sys.executable, "-c", code + "assert 'ray' not in sys.modules"], check=True, timeout=60)
