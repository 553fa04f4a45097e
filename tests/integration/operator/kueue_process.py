"""A real Kueue beside the API server of the tests, and objects of its administrators."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from e2e.cluster import kueue
from tests.integration.conftest import ControlPlane, _install
from tests.ports import free_ports

START_SECONDS = 90.0
API = "/apis/kueue.x-k8s.io/v1beta2"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HOOKS = frozenset(
    f"{kind}{name}.kb.io" for name in ("workload", "clusterqueue", "resourceflavor", "pod") for kind in "mv"
)
"""Kueue's webhooks that the tests install. All others are for jobs of other projects."""
FRAMEWORK = "TrainingJob.v1alpha1.convoy.dev"


def installed() -> bool:
    """Return True if Kueue was built."""
    return (kueue.folder() / kueue.PROGRAM).exists()


def _certificate(folder: Path) -> bytes:
    """Write a self-signed certificate for 127.0.0.1 and its key. Return the certificate."""
    folder.mkdir(parents=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kueue")])
    now = datetime.datetime.now(datetime.UTC)
    found = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = found.public_bytes(serialization.Encoding.PEM)
    (folder / "tls.crt").write_bytes(pem)
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return pem


def _configuration(certificates: Path, probe: int, webhook: int, framework: bool) -> dict[str, Any]:
    external = {"externalFrameworks": [FRAMEWORK]} if framework else {}
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probe}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 200, "burst": 400},
        "manageJobsWithoutQueueName": False,
        "integrations": {"frameworks": ["batch/job", "pod"], **external},
        "featureGates": {"VisibilityOnDemand": False, "MultiKueue": False},
    }


@contextmanager
def running_kueue(plane: ControlPlane, *, framework: bool = True) -> Iterator[None]:
    """Run Kueue with its CRDs and webhooks. `framework`: True if it lists TrainingJob as a kind of others."""
    folder = plane.folder / "kueue"
    certificates = folder / "certs"
    pem = _certificate(certificates)
    # Kueue always reads this folder. It must not be on the machine, so the process gets an /etc of its own.
    own_etc = folder / "etc"
    (own_etc / "kueue/metrics").mkdir(parents=True)
    shutil.copytree(certificates, own_etc / "kueue/metrics/certs")
    for name in ("hosts", "nsswitch.conf", "passwd"):
        if (source := Path("/etc") / name).exists():
            shutil.copyfile(source, own_etc / name)
    probe, webhook = free_ports(2)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(certificates, probe, webhook, framework)))
    _install(plane, kueue.crds())
    command = [
        "unshare",
        "-m" if os.geteuid() == 0 else "-rm",
        "sh",
        "-c",
        'mount --bind "$0" /etc && exec "$@"',
        str(own_etc),
        str(kueue.folder() / kueue.PROGRAM),
        f"--config={config}",
        f"--kubeconfig={plane.kubeconfig()}",
        "--zap-log-level=2",
    ]
    log = folder / "kueue.log"
    process = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT)
    try:
        _wait(process, f"http://127.0.0.1:{probe}/readyz", log)
        _hook(plane, webhook, pem)
        yield
    finally:
        for collection in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            plane.request("DELETE", f"{ADMISSION}/{collection}")
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=2) as response:
                response.read()
            return
        except (urllib.error.URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Kueue did not start: {error}\n{log.read_text()[-3000:]}")
            time.sleep(0.1)


def _hook(plane: ControlPlane, port: int, pem: bytes) -> None:
    """Install the webhooks, and wait until one of them answers."""
    for body in kueue.webhooks():
        hooks = [one for one in body["webhooks"] if one["name"] in HOOKS]
        for one in hooks:
            path = one["clientConfig"]["service"]["path"]
            one["clientConfig"] = {
                "url": f"https://127.0.0.1:{port}{path}",
                "caBundle": base64.b64encode(pem).decode(),
            }
        plural = f"{body['kind'].lower()}s"
        meta = {"name": f"kueue-{body['metadata']['name']}"}
        plane.request("POST", f"{ADMISSION}/{plural}", {**body, "metadata": meta, "webhooks": hooks})
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            context = ssl.create_default_context(cadata=pem.decode())
            urllib.request.urlopen(f"https://127.0.0.1:{port}/", timeout=2, context=context)
        except urllib.error.HTTPError:
            return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > deadline:
                pytest.fail(f"Kueue's webhooks do not answer: {error}")
            time.sleep(0.1)


class Administrator:
    """Makes the objects of Kueue's administrators."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def create(self, plural: str, name: str, body: Mapping[str, Any], namespace: str = "") -> None:
        """Create an object of Kueue."""
        place = f"/namespaces/{namespace}" if namespace else ""
        kinds = {
            "topologies": "Topology",
            "resourceflavors": "ResourceFlavor",
            "clusterqueues": "ClusterQueue",
            "localqueues": "LocalQueue",
            "workloadpriorityclasses": "WorkloadPriorityClass",
        }
        whole = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": kinds[plural],
            "metadata": {"name": name},
            **body,
        }
        self.plane.request("POST", f"{API}{place}/{plural}", whole)

    def queue(self, namespace: str, cpus: int, *, flavor: str, stop: bool = False) -> str:
        """Create a ClusterQueue with a quota of processors, and the LocalQueue `team`. Return the name of the
        ClusterQueue.
        """
        name = f"cq-{namespace}"
        resources = [{"name": "cpu", "nominalQuota": cpus}]
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": resources}]}
            ],
        }
        if stop:
            spec["stopPolicy"] = "HoldAndDrain"
        self.create("clusterqueues", name, {"spec": spec})
        self.create("localqueues", "team", {"spec": {"clusterQueue": name}}, namespace)
        return name

    def workloads(self, namespace: str) -> list[dict[str, Any]]:
        """Return the Workloads of a namespace."""
        found: list[dict[str, Any]] = self.plane.request("GET", f"{API}/namespaces/{namespace}/workloads")[
            "items"
        ]
        return found
