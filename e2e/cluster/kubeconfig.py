"""Kubeconfig files with embedded credentials."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from e2e.cluster import files
from e2e.cluster.pki import Pair


def render(server: str, authority: bytes, certificate: bytes, key: bytes, *, name: str, user: str) -> str:
    """Return a kubeconfig that embeds all credentials (PEM), so that the file can be copied."""

    def inline(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": inline(authority)}}
        ],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": inline(certificate), "client-key-data": inline(key)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write(path: Path, server: str, authority: Path, pair: Pair, *, name: str, user: str) -> Path:
    """Write the kubeconfig of `user`, readable only by its owner. Return its path."""
    text = render(
        server, authority.read_bytes(), pair.cert.read_bytes(), pair.key.read_bytes(), name=name, user=user
    )
    files.write(path, text, mode=0o600)
    return path
