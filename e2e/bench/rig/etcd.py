"""Reads sizes of stored values from etcd's JSON gateway."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.request

from convoy_crds.meta import GROUP
from e2e.cluster.cluster import Cluster
from e2e.cluster.control_plane import ETCD_PORT

JOBS = f"/registry/{GROUP}/trainingjobs/"
SERVING_JOBS = f"/registry/{GROUP}/servingjobs/"
PODS = "/registry/pods/"
_PAGE = 500
_SECONDS = 30.0


def sizes(cluster: Cluster, prefix: str) -> list[int]:
    """Return, for each key with this prefix, the size of key and value together in bytes.

    Raise OSError if etcd does not answer.
    """
    pki = cluster.control_plane.pki
    context = ssl.create_default_context(cafile=str(pki / "etcd-ca.crt"))
    context.load_cert_chain(pki / "apiserver-etcd.crt", pki / "apiserver-etcd.key")
    url = f"https://{cluster.addresses.host}:{ETCD_PORT}/v3/kv/range"
    start, end = prefix.encode(), prefix[:-1].encode() + bytes([ord(prefix[-1]) + 1])
    found: list[int] = []
    while True:
        query = {"key": _text(start), "range_end": _text(end), "limit": str(_PAGE)}
        body = json.dumps(query).encode()
        with urllib.request.urlopen(url, body, timeout=_SECONDS, context=context) as response:
            page = json.load(response)
        pairs = [
            (base64.b64decode(one["key"]), base64.b64decode(one["value"])) for one in page.get("kvs", [])
        ]
        found += [len(key) + len(value) for key, value in pairs]
        if not page.get("more"):
            return found
        start = pairs[-1][0] + b"\0"


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()
