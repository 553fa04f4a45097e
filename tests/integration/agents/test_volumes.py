"""Tests of the kubelet's CSI calls, with real mounts."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import grpc
import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, eventually

from convoy_agents.csi import mounts
from convoy_agents.csi.folders import Folders, PodRecord
from convoy_agents.models.folders import ModelFolders
from convoy_agents.wire import csi_pb2, csi_pb2_grpc, pluginregistration_pb2, pluginregistration_pb2_grpc

UID = "7d9f0000-1111"


def mounted(host: Host, uid: str = UID) -> int:
    return sum(entry.target == str(host.target(uid)) for entry in mounts.table())


def folders_of(host: Host) -> list[Path]:
    return list((host.settings.run_dir / "pods").iterdir())


async def test_the_kubelet_finds_the_driver_by_its_registration(make_host: HostMaker) -> None:
    host = await make_host("one")
    async with host.registrar() as channel:
        stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
        info = await stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=5)
        await stub.NotifyRegistrationStatus(
            pluginregistration_pb2.RegistrationStatus(plugin_registered=True), timeout=5
        )
    assert (info.type, info.name, list(info.supported_versions)) == (
        "CSIPlugin",
        "agent.convoy.dev",
        ["1.0.0"],
    )
    async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as channel:
        identity, node = csi_pb2_grpc.IdentityStub(channel), csi_pb2_grpc.NodeStub(channel)
        assert (await identity.GetPluginInfo(csi_pb2.GetPluginInfoRequest())).name == "agent.convoy.dev"
        assert (await identity.Probe(csi_pb2.ProbeRequest())).ready.value
        assert (await node.NodeGetInfo(csi_pb2.NodeGetInfoRequest())).node_id == "one"


async def test_a_pod_can_read_but_not_change_its_socket_and_library(make_host: HostMaker) -> None:
    host = await make_host("one")
    await host.publish(UID)
    target = host.target(UID)
    assert stat.S_IMODE((target / "agent.sock").stat().st_mode) == 0o666
    assert (target / "lib/convoy_launch.py").read_text() == "print('launched')\n"
    found = {str(path.relative_to(target / "lib")) for path in (target / "lib").rglob("*.py")}
    assert found == {
        "convoy_launch.py",
        "convoy/__init__.py",
        "convoy_commands/__init__.py",
        "convoy_workloads/__init__.py",
        "convoy_workloads/launcher/__init__.py",
        "convoy_workloads/launcher/convoy_launch.py",
        "convoy_workloads/runtime/__init__.py",
        "convoy_workloads/runtime/deep/part.py",
    }
    for path in [target, *target.rglob("*")]:
        wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
        assert path.stat().st_mode & wanted == wanted, path
    for change in (
        lambda: (target / "new").write_text("x"),
        lambda: (target / "lib/convoy_launch.py").write_text("x"),
        (target / "agent.sock").unlink,
        lambda: (target / "lib/convoy").rename(target / "gone"),
    ):
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV) == os.ST_NOSUID | os.ST_NODEV


async def test_publishing_is_idempotent(make_host: HostMaker) -> None:
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    await host.publish(UID)
    assert mounted(host) == 1
    # The launcher's connection must still work.
    launcher.send(type="portPicked", incarnation=1, port=30000)
    session = host.agent.pods.get(UID)
    assert session
    await eventually(lambda: session.state.master_port == 30000)


async def test_unpublishing_removes_all_files_and_is_idempotent(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    await host.unpublish(UID)
    assert await launcher.ended()
    await hub.until(lambda _, message: message.pod_removed.pod_uid == UID)
    assert not mounted(host)
    assert not host.target(UID).exists()
    assert folders_of(host) == []
    assert list((host.settings.run_dir / "state").iterdir()) == []
    await host.unpublish(UID)
    await host.unpublish("never-heard-of")


async def test_a_pod_with_two_volumes_stays_until_the_second_is_unpublished(make_host: HostMaker) -> None:
    host = await make_host("one")
    await host.publish(UID)
    second = host.target(UID).parent.parent / "other" / "mount"
    await host.publish(UID, volume="csi-other", target_path=str(second))
    await host.unpublish(UID)
    assert (second / "agent.sock").is_socket()
    async with host.kubelet() as channel:
        await csi_pb2_grpc.NodeStub(channel).NodeUnpublishVolume(
            csi_pb2.NodeUnpublishVolumeRequest(volume_id="csi-other", target_path=str(second))
        )
    assert folders_of(host) == []


async def test_an_incomplete_mount_is_completed(make_host: HostMaker) -> None:
    """Make a mount that is still writable, as a crash between the agent's two mount(2) calls would leave
    it. The next publish must make it read-only.
    """
    host = await make_host("one")
    await host.publish(UID)
    [folder] = folders_of(host)
    mounts.unmount(host.target(UID))
    mounts._mount(folder, host.target(UID), mounts.MS_BIND)
    assert not mounts.shows(folder, host.target(UID))
    await host.publish(UID)
    assert mounted(host) == 1
    assert mounts.shows(folder, host.target(UID))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"volume_id": ""}, "volume_id"),
        ({"volume_context": {}}, "podInfoOnMount"),
        ({"target_path": "/etc"}, "target_path"),
        ({"target_path": "relative"}, "target_path"),
        ({"volume_context": {"csi.storage.k8s.io/pod.uid": "another-pod"}}, "target_path"),
        ({"volume_context": {"csi.storage.k8s.io/pod.uid": "../../x"}}, "uid"),
    ],
    ids=["no volume", "no pod", "elsewhere", "relative", "another pod's folder", "a path for a uid"],
)
async def test_an_invalid_request_is_refused(
    make_host: HostMaker, changes: dict[str, object], what: str
) -> None:
    host = await make_host("one")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await host.publish(UID, **changes)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert what in str(caught.value.details())
    assert folders_of(host) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, grpc.StatusCode.RESOURCE_EXHAUSTED), (errno.EIO, grpc.StatusCode.INTERNAL)],
)
async def test_a_full_disk_is_reported_and_leaves_no_files(
    make_host: HostMaker, monkeypatch: pytest.MonkeyPatch, number: int, code: grpc.StatusCode
) -> None:
    host = await make_host("one")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), "somewhere")

    with monkeypatch.context() as patch:
        patch.setattr("convoy_agents.csi.library.link", fail)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await host.publish(UID)
    assert caught.value.code() is code
    assert os.strerror(number) in str(caught.value.details())
    assert "node one" in str(caught.value.details())
    assert folders_of(host) == []
    await host.publish(UID)
    assert mounted(host) == 1


async def test_a_failed_repeated_publish_keeps_the_running_pod(
    make_host: HostMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await make_host("one")
    await host.publish(UID)
    monkeypatch.setattr(Folders, "mount", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(grpc.aio.AioRpcError):
        await host.publish(UID)
    assert mounted(host) == 1
    assert await host.launcher(UID)


async def test_a_folder_whose_mount_vanished_is_removed(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    await host.publish("stays-here")
    mounts.unmount(host.target(UID))
    await host.crash()
    await host.start()
    assert host.agent.pods.get(UID) is None
    assert host.agent.pods.get("stays-here")
    assert len(folders_of(host)) == 1


def test_folders_without_state_are_kept_while_mounted(tmp_path: Path) -> None:
    library = tmp_path / "lib-1"
    library.mkdir()
    folders = Folders(tmp_path, library, ModelFolders(tmp_path / "models"))
    record = PodRecord(UID, "n", "ns", {"v": str(tmp_path / "target")})
    folders.mount(folders.prepare(record), "v")
    (tmp_path / "state" / f"{record.short}.json").write_text("{ torn")
    (tmp_path / "pods" / "0123456789abcdef").mkdir()
    try:
        again = Folders(tmp_path, library, ModelFolders(tmp_path / "models"))
        again.recover()
        assert again.records() == []
        assert [path.name for path in (tmp_path / "pods").iterdir()] == [record.short]
    finally:
        mounts.unmount(tmp_path / "target")
