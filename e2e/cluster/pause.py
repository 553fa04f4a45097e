"""The sandbox ("pause") image: one small static program."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from e2e.cluster.binaries import architecture
from e2e.cluster.errors import ClusterError
from e2e.cluster.node_config import PAUSE_IMAGE
from e2e.cluster.oci import Image, Store, layer
from e2e.cluster.run import run

_SOURCE = Path(__file__).with_name("pause.c")
_SOURCE_LABEL = "dev.convoy.source"


def ensure(store: Store) -> Image:
    """Return this checkout's sandbox image. Compile the program only if its source changed."""
    source = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()
    found = store.images().get(PAUSE_IMAGE)
    if found:
        config = json.loads(store.blob(store.blobs(found)[1]).read_bytes())
        if config["config"].get("Labels", {}).get(_SOURCE_LABEL) == source:
            return found
    with store.lock():
        store.create()
        config = {
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535", "Labels": {_SOURCE_LABEL: source}},
        }
        return store.add(PAUSE_IMAGE, config, [layer({"pause": (compile_static(), 0o755)})])


def compile_static() -> bytes:
    """Compile the program without shared libraries, and return its bytes."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise ClusterError("no C compiler on this machine for the sandbox image; run `make host`")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "pause")
        run([compiler, "-Os", "-static", "-s", "-Wall", "-Werror", "-o", out, _SOURCE], deadline=60)
        return out.read_bytes()
