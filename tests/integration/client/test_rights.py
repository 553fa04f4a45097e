"""Tests that the Role in docs/python-client.md permits everything that the client does with jobs, and
nothing else.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from e2e.cluster.run import wait_for

from convoy.client import Client, Forbidden, Refused, WaitTimeout

from .conftest import SERVING_SPEC, SPEC, Report, condition
from .test_example import PAGE

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


@pytest.fixture
def limited(control_plane: Any, client: Client) -> Client:
    """Return a client for a service account that has only the Role of the page, in the namespace of
    `client`.
    """
    space = client.namespace
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    control_plane.request("POST", f"{RBAC}/{space}/roles", yaml.safe_load(text))
    accounts = f"/api/v1/namespaces/{space}/serviceaccounts"
    control_plane.request("POST", accounts, {"metadata": {"name": "trainer"}})
    subject = {"kind": "ServiceAccount", "name": "trainer", "namespace": space}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "convoy-jobs"}
    binding = {"metadata": {"name": "trainer"}, "subjects": [subject], "roleRef": role}
    control_plane.request("POST", f"{RBAC}/{space}/rolebindings", binding)
    token = control_plane.request("POST", f"{accounts}/trainer/token", {"spec": {}})["status"]["token"]
    made = Client(kubeconfig=control_plane.kubeconfig(token), namespace=space)
    wait_for(lambda: _allowed(made), deadline=20, what="the binding")
    return made


def _allowed(client: Client) -> bool:
    """Return True if the API server already applies the RoleBinding."""
    try:
        client.training_jobs.list()
    except Forbidden:
        return False
    return True


def test_the_role_suffices_for_jobs(limited: Client, report: Report) -> None:
    jobs = limited.training_jobs
    jobs.create({"metadata": {"name": "gpt"}, "spec": SPEC})
    report("gpt", phase="Running", incarnation=1, conditions=[condition("Running")])
    assert jobs.wait("gpt", "Running", 20).status.phase == "Running"
    assert jobs.restart("gpt").spec.recovery.restart_id
    assert jobs.suspend("gpt").spec.suspend and not jobs.resume("gpt").spec.suspend
    with pytest.raises(Refused, match="has no pods"):
        jobs.logs("gpt")
    assert jobs.pods("gpt") == [] and jobs.events(jobs.get("gpt").metadata.uid) == []
    assert jobs.pod_events() == ({}, True)
    assert [one.metadata.name for one in jobs.list()] == ["gpt"]
    jobs.delete("gpt")


def test_the_role_suffices_for_servingjobs(limited: Client) -> None:
    jobs = limited.serving_jobs
    jobs.create({"metadata": {"name": "llm"}, "spec": SERVING_SPEC})
    assert jobs.scale("llm", 3).spec.replicas == 3
    assert jobs.pause_rollout("llm").spec.rollout.paused
    assert not jobs.resume_rollout("llm").spec.rollout.paused
    with pytest.raises(Refused, match="has no pods"):
        jobs.logs("llm", replica="server-0")
    with pytest.raises(WaitTimeout, match="no operator has reconciled"):
        jobs.wait_for_rollout("llm", 0.5)
    jobs.delete("llm")


def test_the_role_permits_no_more(limited: Client) -> None:
    with pytest.raises(Forbidden, match="cannot list resource"):
        limited.training_jobs.list(everywhere=True)
    for found in (limited.engines, limited.checkpoint_stores, limited.node_healths):
        with pytest.raises(Forbidden):
            found.list()
