"""Tests of the configuration files of nodes and control plane, and of each node's share of the machine's
processors and memory.
"""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from e2e.cluster import machine, system
from e2e.cluster.addresses import Addresses
from e2e.cluster.cgroups import Cgroups
from e2e.cluster.control_plane import COMPONENTS, ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import Share
from e2e.cluster.node_config import PAUSE_IMAGE, NodeConfig

HYBRID = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""
UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"


def node(*, version: int = 2, lower: bool = True) -> NodeConfig:
    return NodeConfig(
        name="node-2",
        index=2,
        addresses=Addresses(7),
        config=Path("/c/nodes/node-2/config"),
        authority=Path("/c/pki/kubernetes-ca.crt"),
        cgroup="convoy-dev-0a1b2c/node-2",
        cgroup_version=version,
        share=Share(1334, 16000),
        may_lower_oom_score=lower,
        cni=Path("/usr/lib/cni"),
        runc=Path("/usr/sbin/runc"),
    )


def test_cgroup_versions_are_distinguished() -> None:
    hybrid = Cgroups.detect(HYBRID)
    assert (hybrid.version, hybrid.cpu) == (1, Path("/sys/fs/cgroup/cpu,cpuacct"))
    assert Path("/sys/fs/cgroup/unified") in hybrid.mounts
    unified = Cgroups.detect(UNIFIED)
    assert (unified.version, unified.mounts) == (2, (Path("/sys/fs/cgroup"),))
    with pytest.raises(ClusterError, match="cpu controller"):
        Cgroups.detect("proc /proc proc rw 0 0\n")


@pytest.mark.parametrize(("version", "unlimited"), [(1, "-1"), (2, "max 100000")])
def test_throttling_lowers_children_first_and_gives_back(
    tmp_path: Path, version: int, unlimited: str
) -> None:
    file = "cpu.cfs_quota_us" if version == 1 else "cpu.max"
    pod = tmp_path / "node" / "kubepods" / "burstable" / "poduid"
    quotas = {pod / "limited": "50000", pod / "small": "5000", pod / "free": unlimited, pod: unlimited}
    for group, quota in quotas.items():
        group.mkdir(parents=True, exist_ok=True)
        (group / file).write_text(quota if version == 1 or " " in quota else f"{quota} 100000")
    before_text = {group: (group / file).read_text() for group in quotas}
    cgroups = Cgroups(version, (tmp_path,), tmp_path)

    assert cgroups.pod("node", "uid") == pod
    before = cgroups.throttle(pod, 0.25)

    def quota(group: Path) -> str:
        return (group / file).read_text().split()[0]

    assert quota(pod) == quota(pod / "limited") == "25000"
    assert quota(pod / "small") == "5000"
    assert list(before)[-1] == str(pod)
    cgroups.restore(before)
    assert {group: (group / file).read_text() for group in quotas} == before_text
    with pytest.raises(ClusterError, match="no pod with uid other"):
        cgroups.pod("node", "other")


@pytest.mark.parametrize(("nodes", "cores", "mib"), [(1, 2, 4096), (3, 2, 24000), (3, 64, 256000)])
def test_nodes_together_offer_at_most_the_machine(nodes: int, cores: int, mib: int) -> None:
    part = machine.share(nodes, cores=cores, mib=mib)
    offered = nodes * (cores * 1000 - part.reserved_millicores)
    assert cores * 1000 - nodes < offered <= cores * 1000
    assert nodes * (mib - part.reserved_mib) <= mib - 2048


def test_containerd_config_is_toml_with_the_sandbox_image_pinned() -> None:
    parsed = tomllib.loads(node(lower=False).containerd())
    assert parsed["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == PAUSE_IMAGE
    assert parsed["plugins"]["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is True
    other = tomllib.loads(node().containerd())
    assert other["plugins"]["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is False


def test_kubelet_config_follows_the_machine() -> None:
    old, new = node(version=1, lower=False).kubelet(), node().kubelet()
    assert old["failCgroupV1"] is False
    assert "failCgroupV1" not in new
    assert (old["oomScoreAdj"], new["oomScoreAdj"]) == (0, -999)
    assert new["systemReserved"] == {"cpu": "1334m", "memory": "16000Mi"}
    assert new["cgroupRoot"] == "/convoy-dev-0a1b2c/node-2"
    assert new["authentication"]["anonymous"]["enabled"] is False
    assert set(node().files()) >= {"containerd.toml", "kubelet.json", "kube-proxy.json", "resolv.conf"}


def test_control_plane_files_are_consistent(tmp_path: Path) -> None:
    addresses = Addresses(9)
    plane = ControlPlane("dev-0a1b2c", tmp_path, Path("/programs"), addresses, audit="convoy-system")
    plane.prepare()
    commands = plane.commands()
    assert tuple(commands) == COMPONENTS
    api = commands["kube-apiserver"]
    assert "--anonymous-auth=false" in api and "--authorization-mode=Node,RBAC" in api
    assert f"--audit-log-path={plane.audit_log}" in api
    policy = json.loads((tmp_path / "config" / "audit.json").read_text())
    assert policy["rules"] == [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:convoy-system"]},
        {"level": "None"},
    ]
    for command in commands.values():
        for word in command[1:]:
            path = word.partition("=")[2] or word
            if path.startswith(str(tmp_path)) and not path.endswith(("audit.log", "/etcd")):
                assert Path(path).exists(), word
    served = x509.load_pem_x509_certificate((plane.pki / "apiserver.crt").read_bytes())
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(one) for one in names.get_values_for_type(x509.IPAddress)} == {
        addresses.host,
        addresses.kubernetes,
    }
    config = yaml.safe_load(plane.admin_config.read_text())
    assert config["clusters"][0]["cluster"]["server"] == plane.server
    certificate = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    assert x509.load_pem_x509_certificate(certificate).subject.rfc4514_string().startswith("CN=convoy-admin")
    assert (plane.pki / "apiserver.key").stat().st_mode & 0o077 == 0
    etcd = x509.load_pem_x509_certificate((plane.pki / "apiserver-etcd.crt").read_bytes())
    assert etcd.issuer != served.issuer


def test_without_an_audit_log_the_api_server_has_no_audit_options(tmp_path: Path) -> None:
    api = ControlPlane("x", tmp_path, Path("/programs"), Addresses(0)).commands()["kube-apiserver"]
    assert not any(word.startswith("--audit") for word in api)


def test_the_dns_service_points_to_the_machine() -> None:
    addresses = Addresses(1)
    by_kind = {item["kind"]: item for item in system.objects(addresses)["items"]}
    assert by_kind["Service"]["spec"]["clusterIP"] == addresses.dns
    assert by_kind["EndpointSlice"]["endpoints"][0]["addresses"] == [addresses.host]
