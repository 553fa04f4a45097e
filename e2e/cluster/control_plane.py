"""The control plane: etcd, API server, controller manager, scheduler and DNS, which run as plain processes.

All listen on the address of the cluster's bridge, on their usual ports. Each cluster has its own bridge, so
the ports of two clusters never conflict.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import files, kubeconfig
from e2e.cluster.addresses import Addresses
from e2e.cluster.pki import Authority, Pair, signing_key

API_PORT, ETCD_PORT, DNS_PORT = 6443, 2379, 1053
# Components in the order in which they start.
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
# Maximum size of an audit log file. One hour of tests logs about 20 MB.
AUDIT_FILE_MB, AUDIT_FILES = 64, 3


@dataclass(frozen=True)
class ControlPlane:
    """Files and command lines of one cluster's control plane. This class starts no process."""

    identity: str
    folder: Path
    binaries: Path
    addresses: Addresses
    audit: str = ""
    """Namespace whose service accounts' requests are logged; empty for no audit log."""

    @property
    def pki(self) -> Path:
        """The folder of all keys and certificates."""
        return self.folder / "pki"

    @property
    def server(self) -> str:
        """Web address of the API server."""
        return f"https://{self.addresses.host}:{API_PORT}"

    @property
    def admin_config(self) -> Path:
        """The kubeconfig of the cluster's administrator."""
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """Path of the audit log. A full log file is renamed to audit-TIME.log."""
        return self.folder / "logs" / "audit.log"

    def authority(self) -> Authority:
        """Return the certificate authority of everything except etcd."""
        return Authority(self.pki, "kubernetes")

    def client_config(self, authority: Authority, file: str, user: str, *groups: str) -> Path:
        """Write a kubeconfig with a new certificate for `user`. Return its path."""
        pair = authority.issue(file, user, organizations=groups)
        return self.write_config(self.folder / "config" / f"{file}.kubeconfig", authority, pair, user)

    def write_config(self, path: Path, authority: Authority, pair: Pair, user: str) -> Path:
        """Write a kubeconfig for an existing certificate. Return its path."""
        return kubeconfig.write(
            path, self.server, authority.pair.cert, pair, name=f"convoy-{self.identity}", user=user
        )

    def prepare(self) -> None:
        """Write keys, certificates and configuration files."""
        host = self.addresses.host
        etcd = Authority(self.pki, "etcd")
        etcd.issue("etcd", "etcd", names=["localhost"], addresses=[host])
        etcd.issue("apiserver-etcd", "kube-apiserver")
        main = self.authority()
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        names += ["kubernetes.default.svc.cluster.local", "localhost"]
        main.issue(
            "apiserver",
            "kube-apiserver",
            names=names,
            addresses=[host, self.addresses.kubernetes],
            client=False,
        )
        main.issue("apiserver-kubelet", "kube-apiserver-kubelet-client", organizations=["system:masters"])
        for component in ("kube-controller-manager", "kube-scheduler"):
            main.issue(f"{component}-serving", component, addresses=[host], client=False)
            self.client_config(main, component, f"system:{component}")
        self.client_config(main, "kube-proxy", "system:kube-proxy")
        self.client_config(main, "coredns", "system:coredns")
        admin = main.issue("admin", "convoy-admin", organizations=["system:masters"])
        self.write_config(self.admin_config, main, admin, "convoy-admin")
        signing_key(self.pki)
        files.write(self.folder / "config" / "Corefile", self.corefile())
        files.write(
            self.folder / "config" / "audit.json",
            json.dumps(audit_policy(f"system:serviceaccounts:{self.audit}")),
        )
        (self.folder / "etcd").mkdir(mode=0o700, exist_ok=True)

    def corefile(self) -> str:
        """Return the DNS server's configuration. The server resolves only names inside the cluster, because
        pods can reach nothing else.
        """
        return f"""cluster.local:{DNS_PORT} in-addr.arpa:{DNS_PORT} {{
    bind {self.addresses.host}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {self.folder}/config/coredns.kubeconfig
        pods insecure
        ttl 30
    }}
    loadbalance
}}
.:{DNS_PORT} {{
    bind {self.addresses.host}
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""

    def commands(self) -> Mapping[str, list[str]]:
        """Return the command line of each component."""
        host, pki, config = self.addresses.host, self.pki, self.folder / "config"
        etcd_url = f"https://{host}:{ETCD_PORT}"
        audit = (
            [
                f"--audit-policy-file={config}/audit.json",
                f"--audit-log-path={self.audit_log}",
                f"--audit-log-maxsize={AUDIT_FILE_MB}",
                f"--audit-log-maxbackup={AUDIT_FILES - 1}",
            ]
            if self.audit
            else []
        )

        def client(component: str, *ports: str) -> list[str]:
            file = f"{config}/{component}.kubeconfig"
            return [
                str(self.binaries / component),
                f"--kubeconfig={file}",
                f"--authentication-kubeconfig={file}",
                f"--authorization-kubeconfig={file}",
                f"--bind-address={host}",
                f"--tls-cert-file={pki}/{component}-serving.crt",
                f"--tls-private-key-file={pki}/{component}-serving.key",
                f"--client-ca-file={pki}/kubernetes-ca.crt",
                "--leader-elect=false",
                *ports,
            ]

        return {
            "etcd": [
                str(self.binaries / "etcd"),
                f"--name={self.identity}",
                f"--data-dir={self.folder}/etcd",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls=https://{host}:{ETCD_PORT + 1}",
                f"--initial-advertise-peer-urls=https://{host}:{ETCD_PORT + 1}",
                f"--initial-cluster={self.identity}=https://{host}:{ETCD_PORT + 1}",
                f"--cert-file={pki}/etcd.crt",
                f"--key-file={pki}/etcd.key",
                f"--trusted-ca-file={pki}/etcd-ca.crt",
                "--client-cert-auth=true",
                f"--peer-cert-file={pki}/etcd.crt",
                f"--peer-key-file={pki}/etcd.key",
                f"--peer-trusted-ca-file={pki}/etcd-ca.crt",
                "--peer-client-cert-auth=true",
                "--log-level=warn",
                # The cluster does not outlive the machine, so etcd may lose writes that it did not flush to
                # the disk.
                "--unsafe-no-fsync=true",
            ],
            "kube-apiserver": [
                str(self.binaries / "kube-apiserver"),
                f"--bind-address={host}",
                f"--advertise-address={host}",
                f"--secure-port={API_PORT}",
                f"--etcd-servers={etcd_url}",
                f"--etcd-cafile={pki}/etcd-ca.crt",
                f"--etcd-certfile={pki}/apiserver-etcd.crt",
                f"--etcd-keyfile={pki}/apiserver-etcd.key",
                f"--tls-cert-file={pki}/apiserver.crt",
                f"--tls-private-key-file={pki}/apiserver.key",
                f"--client-ca-file={pki}/kubernetes-ca.crt",
                f"--kubelet-certificate-authority={pki}/kubernetes-ca.crt",
                f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
                f"--kubelet-client-key={pki}/apiserver-kubelet.key",
                "--kubelet-preferred-address-types=InternalIP",
                f"--service-cluster-ip-range={self.addresses.services}",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                f"--service-account-key-file={pki}/service-accounts.pub",
                f"--service-account-signing-key-file={pki}/service-accounts.key",
                "--authorization-mode=Node,RBAC",
                "--anonymous-auth=false",
                "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
                "--allow-privileged=true",
                # The machine reaches Service addresses only through node 1, which may be down. So the API
                # server calls the pods of a webhook directly.
                "--enable-aggregator-routing=true",
                "--profiling=false",
                *audit,
            ],
            "kube-controller-manager": [
                *client("kube-controller-manager", "--secure-port=10257"),
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={pki}/service-accounts.key",
                f"--root-ca-file={pki}/kubernetes-ca.crt",
                f"--cluster-signing-cert-file={pki}/kubernetes-ca.crt",
                f"--cluster-signing-key-file={pki}/kubernetes-ca.key",
                "--profiling=false",
            ],
            "kube-scheduler": [*client("kube-scheduler", "--secure-port=10259"), "--profiling=false"],
            "coredns": [str(self.binaries / "coredns"), "-conf", f"{config}/Corefile"],
        }

    def healthy(self, path: str = "/readyz") -> bool:
        """Return True if the API server responds to `path` with status 200."""
        context = ssl.create_default_context(cafile=str(self.pki / "kubernetes-ca.crt"))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        try:
            with urllib.request.urlopen(self.server + path, timeout=2, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return False


def audit_policy(group: str) -> dict[str, Any]:
    """Return an audit policy that logs only requests of the user group `group`, without bodies.

    A watch is logged at its start too, because it may end only after the test has read the log.
    """
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "userGroups": [group]},
            {"level": "None"},
        ],
    }
