"""Runs a real S3 server on the machine's address, which all nodes can reach."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from convoy_crds.meta import API_VERSION
from e2e.cluster import binaries
from e2e.cluster.cluster import Cluster
from e2e.install import NAMESPACE

BUCKET = "checkpoints"
ACCESS, SECRET = "e2e-access-key-id", "e2e-secret-access-key"
STORE = "objects"


@dataclass(frozen=True)
class S3Server:
    """A running S3 server and its bucket. The bucket is a folder of this machine."""

    endpoint: str
    bucket: Path

    def names(self) -> list[str]:
        """Return the names of all objects in the bucket."""
        return sorted(str(path.relative_to(self.bucket)) for path in self.bucket.rglob("*") if path.is_file())


@contextmanager
def s3_server(cluster: Cluster) -> Iterator[S3Server]:
    """Run an S3 server that every node can reach."""
    with serve(binaries.tool("versitygw", cluster.progress), cluster.addresses.host) as found:
        yield found


@contextmanager
def serve(program: Path, host: str) -> Iterator[S3Server]:
    """Run versitygw on a temporary folder, with an empty bucket."""
    with tempfile.TemporaryDirectory(prefix="convoy-objects-") as name:
        root = Path(name)
        for folder in ("data", "meta", "log"):
            (root / folder).mkdir()
        bucket = root / "data" / BUCKET
        bucket.mkdir()
        with socket.socket() as sock:
            sock.bind((host, 0))
            port = sock.getsockname()[1]
        command = [
            str(program),
            *("--access", ACCESS, "--secret", SECRET, "--port", f"{host}:{port}", "--quiet"),
            # versitygw stores metadata in separate files, because not every file system has extended
            # attributes.
            *("posix", "--sidecar", str(root / "meta"), str(root / "data")),
        ]
        with (root / "log" / "server").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                _wait_until_ready(host, port, server, root / "log" / "server")
                yield S3Server(f"http://{host}:{port}", bucket)
            finally:
                server.terminate()
                server.wait(20)


@contextmanager
def checkpoint_store(cluster: Cluster, found: S3Server) -> Iterator[str]:
    """Create a CheckpointStore for the server, with its Secret. Yield the store's name when the store is
    Ready.
    """
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": STORE, "namespace": NAMESPACE},
        "data": {
            name: base64.b64encode(value.encode()).decode()
            for name, value in (("accessKey", ACCESS), ("secretKey", SECRET))
        },
    }
    store = {
        "apiVersion": API_VERSION,
        "kind": "CheckpointStore",
        "metadata": {"name": STORE},
        "spec": {
            "allowedNamespaces": ["*"],
            "s3": {
                "bucket": BUCKET,
                "endpoint": found.endpoint,
                "pathStyle": True,
                "credentialsSecret": STORE,
            },
        },
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(secret))
    cluster.kubectl("apply", "-f", "-", text=json.dumps(store))
    try:
        cluster.kubectl(
            "wait", "--for=condition=Ready", "--timeout=60s", f"checkpointstore/{STORE}", deadline=70
        )
        yield STORE
    finally:
        cluster.kubectl("delete", "checkpointstore", STORE, "--ignore-not-found")
        cluster.kubectl("-n", NAMESPACE, "delete", "secret", STORE, "--ignore-not-found")


def _wait_until_ready(host: str, port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        if server.poll() is not None:
            raise AssertionError(f"versitygw ended: {log.read_text()[-2000:]}")
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
