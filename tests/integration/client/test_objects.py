"""Tests that objects are created, read and deleted at a real API server, and that each refusal raises its
own error.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import incluster_config, kube_config

from convoy.client import (
    AlreadyExists,
    ApiError,
    Client,
    Forbidden,
    Invalid,
    NoCluster,
    NotFound,
    Refused,
    Unreachable,
    api,
)
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.trainingjob import TrainingJob

from .conftest import SINCE, SPEC, Report, condition


def test_a_job_is_created_controlled_and_deleted(client: Client, report: Report) -> None:
    jobs = client.training_jobs
    made = jobs.create(TrainingJob.model_validate({"metadata": {"name": "gpt"}, "spec": SPEC}))
    assert made.metadata.uid and made.metadata.namespace == client.namespace
    assert jobs.get("gpt").spec == made.spec
    with pytest.raises(AlreadyExists, match='"gpt" already exists'):
        jobs.create(made)

    report("gpt", phase="Running", incarnation=1)
    before = jobs.get("gpt").metadata.generation
    restarted = jobs.restart("gpt")
    assert restarted.spec.recovery.restart_id and restarted.metadata.generation == before + 1
    assert jobs.restart("gpt").spec.recovery.restart_id != restarted.spec.recovery.restart_id
    with pytest.raises(Refused, match="is not suspended: Running"):
        jobs.resume("gpt")
    assert jobs.suspend("gpt").spec.suspend
    with pytest.raises(Refused, match="is already suspended"):
        jobs.suspend("gpt")
    assert not jobs.resume("gpt").spec.suspend

    jobs.delete("gpt")
    for call in (jobs.get, jobs.delete, jobs.suspend, jobs.logs):
        with pytest.raises(NotFound, match='"gpt" not found'):
            call("gpt")


def test_jobs_are_listed_by_namespace_and_label(client: Client, control_plane: Any) -> None:
    other = Client(kubeconfig=control_plane.kubeconfig(), namespace=control_plane.namespace("other"))
    for where, name, team in ((client, "a", "red"), (client, "b", "blue"), (other, "c", "red")):
        where.training_jobs.create({"metadata": {"name": name, "labels": {"team": team}}, "spec": SPEC})
    jobs = client.training_jobs
    assert [one.metadata.name for one in jobs.list()] == ["a", "b"]
    assert [one.metadata.name for one in jobs.list(label_selector="team=blue")] == ["b"]
    everywhere = {one.metadata.namespace for one in jobs.list(everywhere=True, label_selector="team=red")}
    assert everywhere >= {client.namespace, other.namespace}


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        (
            {**SPEC, "roles": [{"name": "w", "replicas": 0}]},
            "spec.roles[0].replicas",
            "greater than or equal",
        ),
        ({**SPEC, "success": "nobody"}, "spec.success", "must be AllRolesComplete or the name of a role"),
        ({**SPEC, "rolls": []}, "spec.rolls", "unknown field"),
        ({"engine": {"name": "gpt"}}, "spec.roles", "Required value"),
    ],
)
def test_errors_of_an_invalid_object_name_their_fields(
    client: Client, spec: Any, path: str, words: str
) -> None:
    with pytest.raises(Invalid) as raised:
        client.training_jobs.create({"metadata": {"name": "bad"}, "spec": spec})
    found = {one.path: one.message for one in raised.value.fields}
    assert words in found[path], found


def test_objects_of_other_kinds_are_created_and_read(client: Client, control_plane: Any) -> None:
    store = CheckpointStore.model_validate(
        {
            "metadata": {"name": "client-store"},
            "spec": {"volume": {"claimName": "shared"}, "allowedNamespaces": ["*"]},
        }
    )
    assert client.checkpoint_stores.create(store).spec == store.spec
    assert "client-store" in [one.metadata.name for one in client.checkpoint_stores.list()]
    client.checkpoint_stores.delete("client-store")

    policy = GuardPolicy.model_validate({"metadata": {"name": "client-policy"}})
    assert client.guard_policies.create(policy).spec.mode == "Observe"
    client.guard_policies.delete("client-policy")

    sweep = HealthSweep.model_validate({"metadata": {"name": "client-sweep"}, "spec": {"nodes": ["n1"]}})
    assert client.health_sweeps.create(sweep).spec.nodes == ["n1"]
    assert client.health_sweeps.get("client-sweep").status.phase == "Pending"
    client.health_sweeps.delete("client-sweep")

    engine = {
        "apiVersion": "convoy.dev/v1alpha1", "kind": "Engine", "metadata": {"name": "client-engine"},
        "spec": {"image": "i", "command": ["c"]},
    }  # fmt: skip
    control_plane.request("POST", "/apis/convoy.dev/v1alpha1/engines", engine)
    assert client.engines.get("client-engine").spec.image == "i"
    assert not hasattr(client.engines, "create")

    hardware = {
        "apiVersion": "convoy.dev/v1alpha1", "kind": "HardwareClass", "metadata": {"name": "client-class"},
        "spec": {},
    }  # fmt: skip
    path = "/apis/convoy.dev/v1alpha1/hardwareclasses"
    control_plane.request("POST", path, hardware)
    status = {"status": {"nodes": 3, "facts": {"cores": "8"}}}
    control_plane.request("PATCH", f"{path}/client-class/status", status, "application/merge-patch+json")
    assert client.hardware_classes.get("client-class").status.facts == {"cores": "8"}
    assert "client-class" in [one.metadata.name for one in client.hardware_classes.list(everywhere=True)]
    assert not hasattr(client.hardware_classes, "create")
    client.hardware_classes.delete("client-class")
    with pytest.raises(NotFound):
        client.hardware_classes.get("client-class")


def test_decisions_about_a_node_are_recorded(client: Client, control_plane: Any) -> None:
    path = "/apis/convoy.dev/v1alpha1/nodehealths"
    head = {"apiVersion": "convoy.dev/v1alpha1", "kind": "NodeHealth", "spec": {}}
    control_plane.request("POST", path, {**head, "metadata": {"name": "client-hw"}})
    status = {"status": {"nodeRef": {"name": "client-node"}, "state": "Quarantined"}}
    control_plane.request("PATCH", f"{path}/client-hw/status", status, "application/merge-patch+json")
    healths = client.node_healths

    assert healths.condemn("client-node", "smoke", user="ops").spec.condemned is not None
    released = healths.release("client-node", "a new fan", user="ops")
    assert released.metadata.name == "client-hw" and released.spec.condemned is None
    assert released.spec.release is not None and released.spec.release.reason == "a new fan"
    assert healths.exempt("client-hw", "a test", hours=2).spec.exempt is not None
    condemned = healths.condemn("client-node", "smoke").spec
    assert condemned.exempt is None and condemned.condemned is not None
    with pytest.raises(Invalid, match="exempt or condemned, not both"):
        healths.exempt("client-node", "a test")
    assert healths.end_condemnation("client-node").spec.condemned is None
    assert healths.exempt("client-node", "a test").spec.exempt is not None
    assert healths.end_exemption("client-node").spec.exempt is None
    with pytest.raises(NotFound, match="no NodeHealth for node client-none"):
        healths.release("client-none", "why not")
    with pytest.raises(ValueError, match="hours must be from 1 to 72"):
        healths.exempt("client-node", "long", hours=73)


def test_an_unavailable_log_is_an_error(client: Client, control_plane: Any, report: Report) -> None:
    client.training_jobs.create({"metadata": {"name": "gpt"}, "spec": SPEC})
    with pytest.raises(Refused, match="has no pods"):
        client.training_jobs.logs("gpt")
    labels = {"convoy.dev/job": "gpt", "convoy.dev/kind": "TrainingJob", "convoy.dev/index": "0"}
    pod = {
        "metadata": {"name": "gpt-worker-0", "labels": labels},
        "spec": {"nodeName": "client-gone", "containers": [{"name": "worker", "image": "i"}]},
    }
    path = f"/api/v1/namespaces/{client.namespace}/pods"
    control_plane.request("POST", path, pod)
    with pytest.raises(ApiError, match="client-gone"):
        list(client.training_jobs.logs("gpt"))

    state = {
        "name": "worker", "image": "i", "imageID": "i", "ready": True, "restartCount": 0,
        "state": {"running": {"startedAt": SINCE}},
    }  # fmt: skip
    running = {"status": {"phase": "Running", "containerStatuses": [state]}}
    notices: list[str] = []

    def notify(sentence: str) -> None:
        notices.append(sentence)
        if "not started yet" in sentence:
            control_plane.request(
                "PATCH", f"{path}/gpt-worker-0/status", running, "application/merge-patch+json"
            )
        else:
            report("gpt", phase="Succeeded")

    with pytest.raises(ApiError, match="client-gone"):
        list(client.training_jobs.logs("gpt", follow=True, notify=notify))
    assert [sentence.partition(":")[0] for sentence in notices] == [
        "not started yet",
        "cannot read the log of gpt-worker-0 now, will retry",
    ]
    report("gpt", phase="Running", incarnation=2, conditions=[condition("Running")])
    with pytest.raises(Refused, match="has no rank 2"):
        client.training_jobs.logs("gpt", rank=2)


def test_threads_may_share_a_client(client: Client) -> None:
    def live(number: int) -> str:
        jobs, name = client.training_jobs, f"job-{number}"
        jobs.create({"metadata": {"name": name}, "spec": SPEC})
        assert jobs.suspend(name).spec.suspend and jobs.get(name).metadata.name == name
        with pytest.raises(NotFound, match="never"):
            jobs.get(f"never-{number}")
        return name

    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(live, range(40)))
    assert {one.metadata.name for one in client.training_jobs.list()} == names


def test_a_wrong_token_is_forbidden(client: Client, control_plane: Any) -> None:
    stranger = Client(kubeconfig=control_plane.kubeconfig("a-wrong-token"), namespace="default")
    with pytest.raises(Forbidden) as raised:
        stranger.training_jobs.list()
    assert raised.value.status == 401


def test_a_server_that_does_not_respond_is_unreachable(control_plane: Any, tmp_path: Path) -> None:
    text = control_plane.kubeconfig().read_text().replace(control_plane.url, "https://127.0.0.1:9")
    (tmp_path / "config").write_text(text)
    with pytest.raises(Unreachable, match=r"API server https://127.0.0.1:9 does not respond: .*refused"):
        Client(kubeconfig=tmp_path / "config").training_jobs.list()


def test_two_clients_do_not_share_their_configuration(client: Client, control_plane: Any) -> None:
    elsewhere = control_plane.kubeconfig().read_text().replace(control_plane.url, "https://127.0.0.1:9")
    path = control_plane.folder / "kubeconfig-elsewhere"
    path.write_text(elsewhere)
    Client(kubeconfig=path)
    assert client.training_jobs.list() == []


def test_a_missing_context_or_file_is_an_error(control_plane: Any, tmp_path: Path) -> None:
    path = control_plane.kubeconfig()
    assert Client(kubeconfig=path, context="test").namespace == "default"
    with pytest.raises(NoCluster, match="nowhere"):
        Client(kubeconfig=path, context="nowhere")
    with pytest.raises(NoCluster, match="no cluster"):
        Client(kubeconfig=tmp_path / "none")


def test_a_pod_uses_its_service_account(
    control_plane: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    space = control_plane.namespace("pod")
    host, port = control_plane.url.removeprefix("https://").split(":")
    files = {"token": control_plane.token, "namespace": f"{space}\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(control_plane.ca_file))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "none"))
    with pytest.raises(NoCluster, match="token file does not exist"):
        Client()
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(api, "_POD_NAMESPACE", tmp_path / "namespace")
    found = Client()
    assert found.namespace == space and found.training_jobs.list() == []
