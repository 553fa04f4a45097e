"""Writes credentials of service accounts for programs that run outside pods."""

from __future__ import annotations

from pathlib import Path

import yaml

from e2e.bench.rig.api import Api
from e2e.bench.rig.plane import Plane
from e2e.cluster import files

_TOKEN_SECONDS = 24 * 3600


async def account_config(plane: Plane, api: Api, user: str) -> Path:
    """Write a kubeconfig for the service account `user` and return its path.

    `user` has the form `system:serviceaccount:NAMESPACE:NAME`.
    """
    namespace, name = user.split(":")[-2:]
    response = await api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        },
    )
    config = yaml.safe_load(plane.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": response["status"]["token"]}
    path = plane.cluster.folder / "config" / f"{name}.kubeconfig"
    files.write(path, yaml.safe_dump(config), mode=0o600)
    return path
