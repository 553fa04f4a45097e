"""The configuration files of one node: containerd, kubelet, kube-proxy, CNI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.addresses import Addresses
from e2e.cluster.machine import Share

PAUSE_IMAGE = "docker.io/convoy/pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
EVICTION_PERCENT = 1
"""Percentage of the disk below which free space makes kubelets evict pods."""


@dataclass(frozen=True)
class NodeConfig:
    """The values from which a node's configuration files are rendered. `config` is the folder of these
    files.
    """

    name: str
    index: int
    addresses: Addresses
    config: Path
    authority: Path
    cgroup: str
    cgroup_version: int
    share: Share
    may_lower_oom_score: bool
    cni: Path
    runc: Path

    def files(self) -> dict[str, str]:
        """Return the texts of the files by file name."""
        return {
            "containerd.toml": self.containerd(),
            "kubelet.json": json.dumps(self.kubelet(), indent=1),
            "kube-proxy.json": json.dumps(self.kube_proxy(), indent=1),
            "10-convoy.conflist": json.dumps(self.network(), indent=1),
            "resolv.conf": f"nameserver {self.addresses.dns}\n",
        }

    def containerd(self) -> str:
        """Return the configuration of containerd."""
        return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.native",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE nobody may lower an oom_score_adj, and runc dies when it tries.
restrict_oom_score_adj = {"false" if self.may_lower_oom_score else "true"}

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{self.runc}"
SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{self.cni}"]
conf_dir = "/etc/cni/net.d"
"""

    def kubelet(self) -> dict[str, Any]:
        """Return the configuration of the kubelet."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.addresses.node(self.index),
            "healthzBindAddress": "127.0.0.1",
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.authority)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(self.config / "kubelet.crt"),
            "tlsPrivateKeyFile": str(self.config / "kubelet.key"),
            "clusterDomain": "cluster.local",
            "clusterDNS": [self.addresses.dns],
            "resolvConf": str(self.config / "resolv.conf"),
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            **({"failCgroupV1": False} if self.cgroup_version == 1 else {}),
            "systemReserved": {
                "cpu": f"{self.share.reserved_millicores}m",
                "memory": f"{self.share.reserved_mib}Mi",
            },
            "oomScoreAdj": -999 if self.may_lower_oom_score else 0,
            "failSwapOn": False,
            "serializeImagePulls": False,
            # All nodes and the machine's user share one disk, so the usual eviction thresholds are too high.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": f"{EVICTION_PERCENT}%",
                "nodefs.inodesFree": f"{EVICTION_PERCENT}%",
                "imagefs.available": f"{EVICTION_PERCENT}%",
                "imagefs.inodesFree": f"{EVICTION_PERCENT}%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "logging": {"verbosity": 1},
        }

    def kube_proxy(self) -> dict[str, Any]:
        """Return the configuration of kube-proxy."""
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": self.name,
            "clientConnection": {"kubeconfig": str(self.config / "kube-proxy.kubeconfig")},
            "clusterCIDR": self.addresses.pods,
            # Clients outside the pod network, such as the machine, must get replies through this node. So
            # kube-proxy replaces the source address of their requests.
            "detectLocalMode": "ClusterCIDR",
            "bindAddress": self.addresses.node(self.index),
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # Connection tracking is shared with the machine, so do not resize its table.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
            "oomScoreAdj": -999 if self.may_lower_oom_score else 0,
        }

    def network(self) -> dict[str, Any]:
        """Return the pod network: a bridge in the node with its own address range."""
        return {
            "cniVersion": "1.0.0",
            "name": "convoy",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isDefaultGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": self.addresses.pods_of(self.index)}]],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
                {"type": "bandwidth", "capabilities": {"bandwidth": True}},
            ],
        }
