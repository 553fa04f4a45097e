"""Tests of admission.trainingJobs: the objects that a real API server accepts or rejects under the chart's
policy.
"""

from __future__ import annotations

import copy
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from convoy_operator import chart_test

from .conftest import CHART, Bodies, of_kind, one, render
from .test_rendered import collection

JOBS = "/apis/convoy.dev/v1alpha1/namespaces/{}/trainingjobs"
SERVERS = "/apis/convoy.dev/v1alpha1/namespaces/{}/servingjobs"
MERGE = "application/merge-patch+json"
LABEL = "held-to"
SECONDS = 30.0
"""Maximum number of seconds until the API server applies a new policy or label."""
MEMORY = {
    "plain": {},
    "required": {"required": True},
    "capped": {"most": "8Gi"},
}
"""Value of localMemory in each policy. The key is the label of the namespaces to which the policy applies."""
NAMED = "spec.checkpoint.tiers.local.memory, the most memory of a node for checkpoints, must be given"
MOST = "spec.checkpoint.tiers.local.memory is at most 8Gi in this namespace"
PRIVILEGED = {"securityContext": {"privileged": True}}
TOKEN = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
RefusalOf = Callable[..., str]


def job(*templates: Mapping[str, Any], local: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a job that has one role for each of the pod specs."""
    body: dict[str, Any] = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "asks"},
        "spec": {
            "engine": {"name": "gpt"},
            "roles": [
                {"name": f"role-{number}", "replicas": 1, "template": {"spec": dict(template)}}
                for number, template in enumerate(templates)
            ]
            or [{"name": "worker", "replicas": 1}],
        },
    }
    if local is not None:
        body["spec"]["checkpoint"] = {"tiers": {"local": dict(local)}}
    return body


def server(template: Mapping[str, Any], local: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a ServingJob with this pod spec."""
    found = job(template, local=local)
    found["spec"].pop("engine")
    role = {"name": "server", "engine": {"name": "lm"}, "template": {"spec": dict(template)}}
    return {**found, "kind": "ServingJob", "spec": {**found["spec"], "roles": [role]}}


def policy(helm: Path, name: str) -> Bodies:
    """Return the chart's policies and their bindings. They are renamed, and apply to the namespaces with the
    label `name`.
    """
    values = {
        "enabled": True,
        "namespaceSelector": {"matchLabels": {LABEL: name}},
        "localMemory": MEMORY[name],
    }
    bodies = render(helm, values={"admission": {"trainingJobs": values, "servingJobs": values}})
    found = [body for body in bodies if body["kind"].startswith("ValidatingAdmissionPolicy")]
    for body in found:
        body["metadata"]["name"] = f"{name}-{body['metadata']['name']}"
        if "policyName" in body["spec"]:
            body["spec"]["policyName"] = f"{name}-{body['spec']['policyName']}"
    return found


def label(control_plane: Any, namespace: str, value: str) -> None:
    change = {"metadata": {"labels": {LABEL: value}}}
    control_plane.request("PATCH", f"/api/v1/namespaces/{namespace}", change, MERGE)


def refusal(control_plane: Any, method: str, path: str, body: object, kind: str = "application/json") -> str:
    """Return the API server's error message; an empty text if the API server accepts the object."""
    try:
        control_plane.request(method, path, body, kind)
    except urllib.error.HTTPError as refused:
        return refused.read().decode()
    return ""


def until_refused(refusal_of: Callable[[], str]) -> str:
    deadline = time.monotonic() + SECONDS
    while not (words := refusal_of()):
        assert time.monotonic() < deadline, "the job is accepted"
        time.sleep(0.05)
    return words


@pytest.fixture(scope="module")
def held(control_plane: Any, helm: Path) -> Iterator[dict[str, str]]:
    """Yield one namespace for each active policy, and one namespace without a policy."""
    namespaces = {name: control_plane.namespace(name) for name in [*MEMORY, "free"]}
    made = []
    try:
        for name in MEMORY:
            label(control_plane, namespaces[name], name)
            for body in policy(helm, name):
                control_plane.request("POST", f"{collection(body)}?fieldValidation=Strict", body)
                made.append(f"{collection(body)}/{body['metadata']['name']}")
        for name in MEMORY:
            path = f"{JOBS.format(namespaces[name])}?dryRun=All"
            until_refused(partial(refusal, control_plane, "POST", path, job({"hostPID": True})))
            path = f"{SERVERS.format(namespaces[name])}?dryRun=All"
            until_refused(partial(refusal, control_plane, "POST", path, server({"hostPID": True})))
        yield namespaces
    finally:
        for path in made:
            control_plane.request("DELETE", path)


@pytest.fixture
def refusal_of(control_plane: Any, held: dict[str, str]) -> RefusalOf:
    def refusal_of(body: object, name: str = "plain") -> str:
        return refusal(control_plane, "POST", f"{JOBS.format(held[name])}?dryRun=All", body)

    return refusal_of


def test_the_admission_policy_is_disabled_by_default(helm: Path) -> None:
    assert not [body for body in render(helm) if body["kind"].startswith("ValidatingAdmission")]


def test_the_admission_policy_denies_in_selected_namespaces(helm: Path) -> None:
    chosen = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    values = {"admission": {"trainingJobs": {"enabled": True, "namespaceSelector": chosen}}}
    for given, selector in (({"admission": {"trainingJobs": {"enabled": True}}}, {}), (values, chosen)):
        bodies = render(helm, values=given)
        (found,) = of_kind(bodies, "ValidatingAdmissionPolicy")
        spec = one(bodies, "ValidatingAdmissionPolicyBinding", "convoy-trainingjobs")["spec"]
        assert spec["policyName"] == found["metadata"]["name"]
        assert spec["matchResources"] == {"namespaceSelector": selector}
        assert (spec["validationActions"], found["spec"]["failurePolicy"]) == (["Deny"], "Fail")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ({"containers": [PRIVILEGED]}, "privileged containers"),
        ({"containers": [{}, {"name": "b", **PRIVILEGED}]}, "privileged containers"),
        ({"initContainers": [{"name": "i", "image": "i", **PRIVILEGED}]}, "privileged containers"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"volumes": [{"name": "e", "emptyDir": {}}, {"name": "v", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"hostIPC": True}, "hostIPC"),
        ({"serviceAccountName": "strong"}, "serviceAccountName is not allowed for jobs in this namespace"),
        ({"serviceAccount": "strong"}, "serviceAccountName is not allowed for jobs in this namespace"),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken"),
        ({"volumes": [TOKEN]}, "automountServiceAccountToken"),
        # The rule cannot be evaluated for this value, so the message is about the expression.
        ({"volumes": [{"name": "p", "projected": {"sources": "x"}}]}, "expression"),
        ({"volumes": [{**TOKEN, "hostPath": None}]}, "automountServiceAccountToken"),
        ({"containers": None, "initContainers": [{"name": "i", "image": "i", **PRIVILEGED}]}, "privileged"),
    ],
    ids=str,
)
def test_privileged_templates_are_rejected_in_every_role(
    refusal_of: RefusalOf, template: dict[str, Any], why: str
) -> None:
    for roles in ([template], [{}, template]):
        assert why in refusal_of(job(*roles))
    assert refusal_of(job(template), "free") == "", "another namespace's"


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"containers": [{"securityContext": {"privileged": False, "capabilities": {"add": ["IPC_LOCK"]}}}]},
        {"hostNetwork": False, "hostPID": False, "hostIPC": False, "automountServiceAccountToken": False},
        {"serviceAccountName": "default", "serviceAccount": "default"},
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s"}}]},
        {"volumes": [{"name": "p", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]},
        {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "initContainers": []},
        {"containers": None, "initContainers": None, "volumes": None, "hostNetwork": None, "hostPID": None},
        {"containers": [{"securityContext": None}, {"name": "b", "securityContext": {"privileged": None}}]},
        {"serviceAccountName": None, "serviceAccount": None, "automountServiceAccountToken": None},
        {"volumes": [{"name": "v", "hostPath": None, "projected": None, "emptyDir": {}}]},
        {"volumes": [{"name": "v", "projected": {"sources": None}}]},
        {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": None}]}}]},
    ],
    ids=str,
)
def test_other_templates_are_accepted(refusal_of: RefusalOf, template: dict[str, Any]) -> None:
    assert refusal_of(job(template)) == ""


def test_jobs_without_template_examples_and_the_helm_test_are_accepted(refusal_of: RefusalOf) -> None:
    assert refusal_of(job()) == ""
    for template in (None, {"spec": None}, {"metadata": None}):
        body = job()
        body["spec"]["roles"][0]["template"] = template
        assert refusal_of(body) == ""
    assert (
        refusal_of(chart_test.manifest("any", "gpt", {}, {}) | {"metadata": {"name": "asks"}}, "required")
        == ""
    )
    files = sorted((CHART.parents[1] / "examples").glob("*.yaml"))
    bodies = [body for path in files for body in yaml.safe_load_all(path.read_text())]
    jobs = [body for body in bodies if body["kind"] == "TrainingJob"]
    assert len(jobs) > 3
    for body in jobs:
        body["metadata"].pop("namespace", None)
        assert refusal_of(body) == ""


@pytest.mark.parametrize(
    ("local", "plain", "required", "capped"),
    [
        (None, "", "", ""),
        ({}, "", NAMED, NAMED),
        ({"memory": "1Ki"}, "", "", ""),
        ({"memory": "8Gi"}, "", "", ""),
        ({"memory": "8192Mi"}, "", "", ""),
        ({"memory": "8193Mi"}, "", "", MOST),
        ({"memory": "8589934593"}, "", "", MOST),
        ({"memory": "1Ti"}, "", "", MOST),
        ({"memory": "99999999999999999Ti"}, "", "", MOST),
    ],
)
def test_checkpoint_memory_must_be_declared_and_bounded_if_required(
    refusal_of: RefusalOf, local: dict[str, Any] | None, plain: str, required: str, capped: str
) -> None:
    for name, why in (("plain", plain), ("required", required), ("capped", capped)):
        words = refusal_of(job(local=local), name)
        assert (why in words) if why else (words == ""), (name, words)


@pytest.mark.parametrize(
    ("local", "required", "capped"),
    [(None, "", ""), ({}, NAMED, NAMED), ({"memory": "8Gi"}, "", ""), ({"memory": "8193Mi"}, "", MOST)],
)
def test_memory_for_states_of_replicas_is_bounded_likewise(
    control_plane: Any, held: dict[str, str], local: dict[str, Any] | None, required: str, capped: str
) -> None:
    for name, why in (("plain", ""), ("required", required), ("capped", capped)):
        path = f"{SERVERS.format(held[name])}?dryRun=All"
        words = refusal(control_plane, "POST", path, server({}, local))
        assert (why in words) if why else (words == ""), (name, words)


def test_an_existing_job_may_continue_but_not_add_privileges(
    control_plane: Any, held: dict[str, str]
) -> None:
    namespace = control_plane.namespace("labelled-later")
    path = JOBS.format(namespace)
    mine = f"{path}/asks"
    body = job({"hostNetwork": True}, local={})
    made = control_plane.request("POST", path, copy.deepcopy(body))
    label(control_plane, namespace, "capped")
    other = copy.deepcopy(body) | {"metadata": {"name": "other"}}
    until_refused(lambda: refusal(control_plane, "POST", f"{path}?dryRun=All", other))

    def change(body: object, subresource: str = "") -> str:
        return refusal(control_plane, "PATCH", mine + subresource, body, MERGE)

    assert change({"status": {"phase": "Running"}}, "/status") == ""
    assert change({"spec": {"suspend": True}}) == ""
    assert change({"metadata": {"finalizers": ["example.com/kept"]}}) == ""
    more = copy.deepcopy(made["spec"]["roles"])
    more[0]["replicas"] = 2
    assert "hostNetwork" in change({"spec": {"roles": more}})
    more[0]["template"]["spec"] = {}
    assert NAMED in change({"spec": {"roles": more}})
    mended = {"spec": {"roles": more, "checkpoint": {"tiers": {"local": {"memory": "1Gi"}}}}}
    assert change(mended) == ""
    assert MOST in change({"spec": {"checkpoint": {"tiers": {"local": {"memory": "9Gi"}}}}})
    assert "privileged" in change({"spec": {"roles": job({"containers": [PRIVILEGED]})["spec"]["roles"]}})
    control_plane.request("DELETE", mine)
    assert change({"metadata": {"finalizers": None}}) == ""
    assert "NotFound" in refusal(control_plane, "GET", mine, None)
