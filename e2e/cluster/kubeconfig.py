"""Kubeconfig files: how a component or a person reaches the API server."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from e2e.cluster import files
from e2e.cluster.pki import Pair


def render(server: str, authority: bytes, certificate: bytes, key: bytes, *, name: str, user: str) -> str:
    """A kubeconfig with everything inside, so that the file can be copied anywhere. Inputs are PEM."""

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
    """Write the kubeconfig of `user`, readable by its owner only."""
    text = render(
        server, authority.read_bytes(), pair.cert.read_bytes(), pair.key.read_bytes(), name=name, user=user
    )
    files.write(path, text, mode=0o600)
    return path
