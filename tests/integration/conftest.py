"""A real kube-apiserver and etcd for the tests.

The programs come from the folder in CONVOY_BINARIES, or else from `python -m e2e.cluster binaries`.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from e2e import rights
from e2e.cluster.control_plane import audit_policy
from tests.integration import grouping, leftovers
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    items.sort(key=grouping.rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return our own scheduler for `--dist loadgroup`."""
    return grouping.Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def binaries() -> Path:
    """Return the folder of kube-apiserver and etcd."""
    named = os.environ.get("CONVOY_BINARIES")
    if named:
        return Path(named)
    found = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "binaries"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.fail(f"no kube-apiserver and etcd: {found.stderr[-2000:]}")
    return Path(found.stdout.split()[-1])


@pytest.fixture(scope="session", autouse=True)
def no_mounts_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the mounts of killed runs at the start, and those of failed tests at the end."""
    own = tmp_path_factory.getbasetemp()
    # A process of pytest-xdist has a folder of its own in that of the run.
    run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    if re.fullmatch(r"pytest-[0-9]+", run.name):
        leftovers.unmount_ended_runs(run.parent)
    yield
    leftovers.unmount_below(own)


@dataclass(frozen=True)
class ControlPlane:
    """A running API server."""

    url: str
    token: str
    """Token of a cluster administrator."""
    etcd_url: str
    folder: Path
    ca_file: Path

    def request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> dict:
        """Send a request as administrator. Return the parsed response. Raises HTTPError if it is refused."""
        return orjson.loads(
            self.raw(path, method, orjson.dumps(body) if body is not None else None, content_type)
        )

    def raw(
        self,
        path: str,
        method: str = "GET",
        data: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send a request with bytes as administrator. Return the bytes of the response."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=data,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return bytes(answer.read())

    def audited_requests(self, namespace: str, account: str) -> list[rights.Request]:
        """Return the requests of a service account."""
        user = f'"system:serviceaccount:{namespace}:{account}"'.encode()
        lines = (self.folder / "audit.log").read_bytes().splitlines(keepends=True)
        # The last line may be incomplete.
        whole = [line for line in lines if user in line and line.endswith(b"\n")]
        return [found for line in whole if (found := rights.parse(line, namespace))]

    def kubeconfig(self, token: str | None = None) -> Path:
        """Write a kubeconfig for the owner of the token, or for the administrator. Return its path."""
        path = self.folder / f"kubeconfig-{secrets.token_hex(4)}"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                        }
                    ],
                    "users": [{"name": "user", "user": {"token": token or self.token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
                    "current-context": "test",
                }
            )
        )
        return path

    def namespace(self, prefix: str = "test") -> str:
        """Create a namespace and return its name."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name


def _keys(folder: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    (folder / "sa.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (folder / "sa.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _start(stack: ExitStack, command: list[str], output: Path) -> subprocess.Popen[bytes]:
    # Rarer garbage collections of Go save a fifth of the processor time, for some hundred MiB.
    environment = {**os.environ, "GOGC": "400"}
    process = subprocess.Popen(command, env=environment, stdout=output.open("wb"), stderr=subprocess.STDOUT)

    def stop() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(stop)
    return process


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run one API server with Convoy's CRDs for the session."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@contextmanager
def running_control_plane(
    folder: Path, gates: Collection[str] = (), served: Collection[str] = ()
) -> Iterator[ControlPlane]:
    """Run an API server with Convoy's CRDs.

    `gates`: more feature gates, such as `GenericWorkload=true`. `served`: more values of `--runtime-config`.
    """
    programs = binaries()
    # Before 1.36 these policies are off by default. Tests change pods with them.
    features = ["MutatingAdmissionPolicy=true", *gates]
    versions = ["admissionregistration.k8s.io/v1beta1=true", *served]
    _keys(folder)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (folder / "audit.json").write_bytes(orjson.dumps(audit_policy("system:serviceaccounts")))
    etcd_port, peer_port, port = free_ports(3)
    etcd = f"http://127.0.0.1:{etcd_port}"
    with ExitStack() as stack:
        _start(
            stack,
            [
                str(programs / "etcd"),
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                "--unsafe-no-fsync",
            ],
            folder / "etcd.log",
        )
        server = _start(
            stack,
            [
                str(programs / "kube-apiserver"),
                f"--etcd-servers={etcd}",
                f"--secure-port={port}",
                "--bind-address=127.0.0.1",
                f"--cert-dir={folder / 'certs'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-signing-key-file={folder / 'sa.key'}",
                f"--service-account-key-file={folder / 'sa.pub'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount",
                # As in real clusters: pods may ask for privileges, and pod security decides.
                "--allow-privileged=true",
                f"--feature-gates={','.join(features)}",
                f"--runtime-config={','.join(versions)}",
                f"--audit-policy-file={folder / 'audit.json'}",
                f"--audit-log-path={folder / 'audit.log'}",
                # Larger than the log of a whole session, because only one file is read.
                "--audit-log-maxsize=256",
                "--audit-log-maxbackup=1",
            ],
            folder / "kube-apiserver.log",
        )
        plane = ControlPlane(
            url=f"https://127.0.0.1:{port}",
            token=token,
            etcd_url=etcd,
            folder=folder,
            ca_file=folder / "certs" / "apiserver.crt",
        )
        _wait(plane, server)
        _install(plane, [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))])
        yield plane


def _wait(plane: ControlPlane, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            # The API server is ready once the default roles exist. Without them nobody may use discovery.
            plane.raw("/readyz")
            plane.request("GET", "/api/v1/namespaces/default")
            return
        except (urllib.error.URLError, OSError, ssl.SSLError) as error:
            if server.poll() is not None or time.monotonic() > deadline:
                text = (plane.folder / "kube-apiserver.log").read_text()[-3000:]
                pytest.fail(f"kube-apiserver did not start: {error}\n{text}")
            time.sleep(0.1)


def _install(plane: ControlPlane, crds: list[dict]) -> None:
    """Create the CRDs, then wait until all their kinds are served: the API server starts them together."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for crd in crds:
        # Strict, as kubectl does. Otherwise the server would drop unknown keywords without an error.
        plane.request("POST", f"{path}?fieldValidation=Strict", crd)
    deadline = time.monotonic() + START_SECONDS
    left = list(crds)
    while left := [crd for crd in left if not _established(plane, path, crd)]:
        if time.monotonic() > deadline:
            pytest.fail(f"CRDs were not established: {[crd['metadata']['name'] for crd in left]}")
        time.sleep(0.05)


def _established(plane: ControlPlane, path: str, crd: dict) -> bool:
    """Return True if a CRD is established and its kind is served."""
    conditions = (
        plane.request("GET", f"{path}/{crd['metadata']['name']}").get("status", {}).get("conditions") or []
    )
    known = any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)
    return known and _served(plane, crd["spec"])


def _served(plane: ControlPlane, spec: dict) -> bool:
    """Return True if a kind can be listed. Right after it is established, it cannot be listed yet."""
    version = next(entry["name"] for entry in spec["versions"] if entry["storage"])
    try:
        plane.request("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
    except urllib.error.HTTPError:
        return False
    return True
