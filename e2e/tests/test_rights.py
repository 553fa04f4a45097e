"""Tests of the rights of Convoy's service accounts. They must use every right that the chart grants, and
request nothing else.

These tests run last, because they check the API requests of all other tests.
"""

from __future__ import annotations

import http.client
import ssl
from collections import Counter
from urllib.parse import urlsplit

import pytest

from e2e import rights
from e2e.cluster.cluster import Cluster
from e2e.drive.unused_rights import OPERATOR, USED_ELSEWHERE
from e2e.install import NAMESPACE, rendered
from e2e.rights import Request, Right

DASHBOARD = "convoy-dashboard"
ACCOUNTS = (OPERATOR, DASHBOARD, "convoy-agent", "convoy-uninstall", "convoy-test", "default")

REFUSED: dict[Right, str] = {}
"""Rights whose requests may be refused, each with the reason. A right without a name stands for any name."""


@pytest.fixture(scope="module")
def requests(cluster: Cluster) -> list[Request]:
    """Return all API requests of Convoy's accounts since the cluster was created."""
    log = cluster.control_plane.audit_log
    files = sorted(log.parent.glob(f"{log.stem}*{log.suffix}"))
    assert files, "the cluster has no audit log: delete it and run the tests again"
    lines = (line for file in files for line in file.read_bytes().splitlines(keepends=True))
    # The API server may be in the middle of the last line, so skip an incomplete line.
    found = [rights.parse(line, NAMESPACE) for line in lines if line.endswith(b"\n")]
    return [one for one in found if one is not None]


@pytest.fixture(scope="module")
def granted(cluster: Cluster) -> frozenset[Right]:
    """Return the rights that the chart grants with all its optional parts."""
    return rights.granted(rendered(cluster.binaries, "--set=dashboard.enabled=true"), ACCOUNTS)


def test_no_request_of_convoy_is_forbidden(requests: list[Request]) -> None:
    refused = Counter(str(one) for one in requests if one.refused and not _explained(one))
    assert not refused
    assert any(one.right.account == OPERATOR for one in requests), (
        "negative control: the operator's requests are in the log"
    )


def test_every_right_is_used(
    requests: list[Request],
    granted: frozenset[Right],
    ran: frozenset[str],
    incomplete: str,
    more_than_slice: bool,
) -> None:
    if incomplete:
        pytest.skip(incomplete)
    assert (
        rights.faults(
            granted, rights.used(granted, requests), USED_ELSEWHERE, ran, more_than_slice=more_than_slice
        )
        == []
    )


def test_an_agent_has_no_right_and_no_token_for_the_api_server(
    cluster: Cluster, requests: list[Request], granted: frozenset[Right]
) -> None:
    assert not [one for one in granted if one.account in ("convoy-agent", "default")]
    assert not [one for one in requests if one.right.account in ("convoy-agent", "default")]
    pod = cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=agent")["items"][0]
    name = pod["metadata"]["name"]
    inside = ("exec", "-n", NAMESPACE, name, "--")
    found = cluster.kubectl(*inside, "find", "/run/secrets", "-name", "token")
    # The token's path is a link into a folder whose name starts with two dots, so skip that folder.
    tokens = [path for path in found.split() if "/.." not in path]
    assert tokens == ["/run/secrets/convoy.dev/token"]
    assert _status(cluster, cluster.kubectl(*inside, "cat", *tokens)) == 401


def _explained(request: Request) -> bool:
    return any(right.covers(request.right) for right in REFUSED)


def _status(cluster: Cluster, token: str) -> int:
    """Return the HTTP status with which the API server responds to a request with this token."""
    plane = cluster.control_plane
    place = urlsplit(plane.server)
    context = ssl.create_default_context(cafile=str(plane.pki / "kubernetes-ca.crt"))
    connection = http.client.HTTPSConnection(place.netloc, context=context, timeout=10)
    try:
        connection.request("GET", "/version", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()
