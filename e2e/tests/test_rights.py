"""Convoy's service accounts use every right that the chart gives them, and ask for no other. Runs last."""

from __future__ import annotations

import http.client
import ssl
from collections import Counter
from urllib.parse import urlsplit

import pytest

from e2e import rights
from e2e.cluster.cluster import Cluster
from e2e.install import NAMESPACE, rendered
from e2e.rights import Elsewhere, Request, Right

OPERATOR, DASHBOARD = "convoy-operator", "convoy-dashboard"
ACCOUNTS = (OPERATOR, DASHBOARD, "convoy-agent", "convoy-uninstall", "convoy-test", "default")
INTEGRATION = "tests/integration"
RARE = f"{INTEGRATION}/operator/test_rights.py"
GUARDING = f"{INTEGRATION}/operator/test_guarding.py::test_a_slow_node_is_marked_and_its_pod_leaves"
STORES = (
    f"{INTEGRATION}/operator/test_stores.py"
    "::test_a_store_is_tried_by_an_agent_and_again_when_its_keys_are_renewed"
)
ELSEWHERE = (
    Elsewhere(
        OPERATOR,
        "update",
        "trainingjobs/finalizers.convoy.dev",
        "an admission plugin, which this cluster has, asks for it when a pod is created with its owner",
        "e2e/tests/test_life.py::test_a_job_goes_from_apply_to_succeeded_and_its_held_out_loss_falls",
        uncertain=True,
    ),
    Elsewhere(
        OPERATOR,
        "get",
        "pods",
        "a pod of the name is there already: somebody's, or the operator's own from an answer that was lost",
        f"{RARE}::test_a_pod_that_has_the_name_already_is_read_and_left_alone",
        uncertain=True,
    ),
    Elsewhere(
        OPERATOR,
        "get",
        "nodehealths.convoy.dev hardwareclasses.convoy.dev",
        "another leader has made it a moment ago",
        f"{RARE}::test_an_object_that_another_leader_has_made_is_read",
        uncertain=True,
    ),
    Elsewhere(
        OPERATOR,
        "list",
        "events",
        "a pod that is late to come up, which few of the slice are",
        f"{INTEGRATION}/operator/test_mutated_pods.py::test_what_only_events_tell_reaches_the_job",
        uncertain=True,
    ),
    Elsewhere(
        OPERATOR,
        "patch",
        "pods",
        "a container that goes on beside ranks that have ended",
        f"{INTEGRATION}/operator/test_mutated_pods.py::test_a_sidecar_is_ended_with_the_job_and_its_pod_stays",
        uncertain=True,
    ),
    Elsewhere(OPERATOR, "create", "pods/eviction", "no GuardPolicy of the slice drains a node", GUARDING),
    Elsewhere(
        OPERATOR,
        "create",
        "healthsweeps.convoy.dev",
        "the sweeps of the slice are made by hand",
        f"{INTEGRATION}/operator/test_sweeping.py::test_nodes_that_join_are_gated_swept_and_let_in",
    ),
    Elsewhere(
        OPERATOR,
        "delete",
        "healthsweeps.convoy.dev hardwareclasses.convoy.dev",
        "they stay for a minute at least, and for a year",
        f"{RARE}::test_what_nobody_needs_any_more_is_deleted",
    ),
    Elsewhere(OPERATOR, "get", "secrets", "the slice has no CheckpointStore", STORES),
    Elsewhere(
        OPERATOR, "patch", "checkpointstores/status.convoy.dev", "the slice has no CheckpointStore", STORES
    ),
    Elsewhere(
        "convoy-uninstall",
        "list",
        "trainingjobs.convoy.dev pods nodes",
        "the cluster is taken down as a whole",
        f"{INTEGRATION}/chart/test_uninstall.py"
        "::test_it_uses_every_right_that_the_chart_gives_it_and_asks_for_no_other",
    ),
)
"""What the slice has no reason to use."""

REFUSED: dict[Right, str] = {}
"""Requests that are refused and may be, with the reason; a right without a name stands for any name."""


@pytest.fixture(scope="module")
def asked(cluster: Cluster) -> list[Request]:
    """What Convoy's accounts have asked for since the cluster was made."""
    log = cluster.control_plane.audit_log
    files = sorted(log.parent.glob(f"{log.stem}*{log.suffix}"))
    assert files, "the cluster keeps no audit log: take it down, and run this again"
    lines = (line for file in files for line in file.read_bytes().splitlines(keepends=True))
    # The last one may be half-written.
    found = [rights.parse(line, NAMESPACE) for line in lines if line.endswith(b"\n")]
    return [one for one in found if one is not None]


@pytest.fixture(scope="module")
def granted(cluster: Cluster) -> frozenset[Right]:
    """What the chart gives them, with all that it can install."""
    return rights.granted(rendered(cluster.binaries, "--set=dashboard.enabled=true"), ACCOUNTS)


def test_nothing_that_we_ask_for_is_refused(asked: list[Request]) -> None:
    refused = Counter(str(one) for one in asked if one.refused and not _explained(one))
    assert not refused
    assert any(one.right.account == OPERATOR for one in asked), "the looking works"


def test_every_right_is_used(
    asked: list[Request], granted: frozenset[Right], ran: frozenset[str], partial: str, more: bool
) -> None:
    if partial:
        pytest.skip(partial)
    assert rights.faults(granted, rights.used(granted, asked), ELSEWHERE, ran, more=more) == []


def test_an_agent_has_no_right_and_no_token_to_ask_with(
    cluster: Cluster, asked: list[Request], granted: frozenset[Right]
) -> None:
    assert not [one for one in granted if one.account in ("convoy-agent", "default")]
    assert not [one for one in asked if one.right.account in ("convoy-agent", "default")]
    pod = cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=agent")["items"][0]
    name = pod["metadata"]["name"]
    inside = ("exec", "-n", NAMESPACE, name, "--")
    found = cluster.kubectl(*inside, "find", "/run/secrets", "-name", "token")
    # Where the kubelet has put it the last time is a folder whose name begins with two dots.
    tokens = [path for path in found.split() if "/.." not in path]
    assert tokens == ["/run/secrets/convoy.dev/token"]
    assert _status(cluster, cluster.kubectl(*inside, "cat", *tokens)) == 401


def _explained(request: Request) -> bool:
    return any(right.covers(request.right) for right in REFUSED)


def _status(cluster: Cluster, token: str) -> int:
    """What the API server answers to whoever comes with a token."""
    plane = cluster.control_plane
    place = urlsplit(plane.server)
    context = ssl.create_default_context(cafile=str(plane.pki / "kubernetes-ca.crt"))
    connection = http.client.HTTPSConnection(place.netloc, context=context, timeout=10)
    try:
        connection.request("GET", "/version", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()
