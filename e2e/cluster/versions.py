"""Versions of the local cluster's programs and their sources. Change them only here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.cluster.errors import ClusterError

CHOICE = "CONVOY_KUBERNETES"
"""Environment variable that chooses a minor version of `RELEASES`."""
DEFAULT_MINOR = "1.36"


@dataclass(frozen=True)
class Release:
    """A release of Kubernetes, and the release of etcd that its tests use."""

    kubernetes: str
    etcd: str
    module: str
    """Name, without suffix, of the .mod and .sum files with which our Go module builds this release."""


RELEASES: Mapping[str, Release] = {
    "1.34": Release("1.34.4", "3.6.4", "go-1.34"),
    "1.35": Release("1.35.4", "3.6.5", "go-1.35"),
    "1.36": Release("1.36.3", "3.6.8", "go"),
    "1.37": Release("1.37.2", "3.7.0", "go-1.37"),
}


def release() -> Release:
    """Return the release that the environment variable `CHOICE` names, or the default release."""
    minor = os.environ.get(CHOICE) or DEFAULT_MINOR
    if minor not in RELEASES:
        raise ClusterError(f"{CHOICE}={minor} is not a known minor version; use one of {', '.join(RELEASES)}")
    return RELEASES[minor]


# Names under which the binary of our Go module runs; each name is a different program.
KUBE = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "etcd",
)


@dataclass(frozen=True)
class Tool:
    """A program of one Go module: `packages` at `version`. `archive` is the address of its official
    download, if any.

    In an address `{v}` stands for the version without its leading `v`, and `{arch}` for amd64 or arm64.
    `sums` is the address of its SHA-256 digests: one digest without a name, or lines of `digest  file`.
    """

    version: str
    packages: tuple[str, ...]
    archive: str = ""
    sums: str = ""

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of the tool's programs."""
        return tuple(package.rsplit("/", 1)[-1] for package in self.packages)


_GITHUB = "https://github.com"
_CONTAINERD = (
    f"{_GITHUB}/containerd/containerd/releases/download/v{{v}}/containerd-{{v}}-linux-{{arch}}.tar.gz"
)

TOOLS = {
    "containerd": Tool(
        "v2.2.9",
        (
            "github.com/containerd/containerd/v2/cmd/containerd",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            "github.com/containerd/containerd/v2/cmd/ctr",
        ),
        _CONTAINERD,
        f"{_CONTAINERD}.sha256sum",
    ),
    "coredns": Tool(
        "v1.14.7",
        ("github.com/coredns/coredns",),
        f"{_GITHUB}/coredns/coredns/releases/download/v{{v}}/coredns_{{v}}_linux_{{arch}}.tgz",
        f"{_GITHUB}/coredns/coredns/releases/download/v{{v}}/coredns_{{v}}_linux_{{arch}}.tgz.sha256",
    ),
    "helm": Tool(
        "v3.22.0",
        ("helm.sh/helm/v3/cmd/helm",),
        "https://get.helm.sh/helm-v{v}-linux-{arch}.tar.gz",
        "https://get.helm.sh/helm-v{v}-linux-{arch}.tar.gz.sha256sum",
    ),
    # The tools below are not part of a cluster. They are fetched only when a test needs them.
    "kwok": Tool(
        "v0.8.0",
        ("sigs.k8s.io/kwok/cmd/kwok",),
    ),
    "versitygw": Tool(
        "v1.8.0",
        ("github.com/versity/versitygw/cmd/versitygw",),
    ),
}
# Tools that every cluster needs, in the order in which they are fetched.
BASE_TOOLS = ("containerd", "coredns", "helm")
KUBE_ARCHIVE = "https://dl.k8s.io/v{v}/bin/linux/{arch}/{program}"
ETCD_ARCHIVE = f"{_GITHUB}/etcd-io/etcd/releases/download/v{{v}}/etcd-v{{v}}-linux-{{arch}}.tar.gz"
ETCD_SUMS = f"{_GITHUB}/etcd-io/etcd/releases/download/v{{v}}/SHA256SUMS"
