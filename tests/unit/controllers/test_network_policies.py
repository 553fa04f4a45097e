"""Tests of the NetworkPolicies of jobs, by a small model of their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import Servers

from convoy_controllers.children import Apply
from convoy_controllers.plan import Plan
from convoy_controllers.resources import NETWORK_POLICIES
from convoy_controllers.servingjob import plan as serving
from convoy_controllers.servingjob.observed import Observed as ServingObserved
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob import plan as training
from convoy_controllers.workers.network import PROBE_PORT, NetworkSettings, names, policies
from convoy_controllers.workers.refusal import Refusal
from convoy_crds import trainingjob
from convoy_crds.engine import Engine
from convoy_crds.servingjob import ServingJob

ON = NetworkSettings(True, "convoy-system")


@dataclass(frozen=True)
class Pod:
    """A pod at one end of a connection. A client outside the cluster has no namespace."""

    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = "default"


def chosen(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    wanted = (selector or {}).get("matchLabels") or {}
    expressions = (selector or {}).get("matchExpressions") or []
    assert all(one["operator"] == "Exists" for one in expressions)
    exact = all(labels.get(name) == value for name, value in wanted.items())
    return exact and all(one["key"] in labels for one in expressions)


def is_peer(peer: Mapping[str, Any], source: Pod, namespace: str) -> bool:
    if not source.namespace or not chosen(peer.get("podSelector"), source.labels):
        return False
    if "namespaceSelector" not in peer:
        return source.namespace == namespace
    return chosen(peer["namespaceSelector"], {"kubernetes.io/metadata.name": source.namespace})


def may_connect(found: Iterable[Apply], source: Pod, target: Pod, port: int) -> bool:
    """Return True if the policies let `source` connect to `target`, as the Kubernetes API defines it."""
    specs = [one.manifest["spec"] for one in found]
    applying = [one for one in specs if chosen(one["podSelector"], target.labels)]
    assert all(one["policyTypes"] == ["Ingress"] for one in applying), "pods may connect to anything"
    rules = [rule for one in applying for rule in one["ingress"]]
    return not applying or any(
        ("from" not in rule or any(is_peer(peer, source, target.namespace) for peer in rule["from"]))
        and ("ports" not in rule or any(one["port"] == port for one in rule["ports"]))
        for rule in rules
    )


def own(job: str, kind: str, role: str = "worker", index: str = "0", namespace: str = "default") -> Pod:
    labels = {"job": job, "kind": kind, "role": role, "index": index}
    return Pod({f"convoy.dev/{name}": value for name, value in labels.items()}, namespace)


OPERATOR, AGENT = (
    Pod({"app.kubernetes.io/name": "convoy", "app.kubernetes.io/component": part}, "convoy-system")
    for part in ("operator", "agent")
)
FAKE_OPERATOR = replace(OPERATOR, namespace="default")
STRANGER, OUTSIDE = Pod(namespace="team"), Pod(namespace="")


def applied(made: Plan) -> list[Apply]:
    return [one for one in made.children if isinstance(one, Apply) and one.resource == NETWORK_POLICIES]


def serving_observed(settings: NetworkSettings, type: str = "ClusterIP", **more: Any) -> ServingObserved:
    roles = [
        {"name": "server", "engine": {"name": "lm"}, "groupSize": 2},
        {"name": "router", "engine": {"name": "lm"}, "replicas": 1},
    ]
    spec = {"roles": roles, "scaledRole": "server", "service": {"role": "router", "type": type}, **more}
    metadata = {"name": "llm", "namespace": "default", "uid": "u", "generation": 1}
    engine = {"image": "a", "command": ["a"], "roleKind": "Serving"}
    return ServingObserved(
        job=ServingJob.model_validate({"metadata": metadata, "spec": spec}),
        engines={"lm": Engine.model_validate({"metadata": {"name": "lm"}, "spec": engine})},
        network=settings,
    )


def test_only_ranks_of_the_same_job_reach_a_trainingjob() -> None:
    cluster = ToyCluster(make_job(), engine=make_engine())
    found = applied(training.plan(replace(cluster.observed(), network=ON), cluster.now))
    name = cluster.job.metadata.name
    rank = own(name, "TrainingJob")
    assert may_connect(found, own(name, "TrainingJob", "chief", "1"), rank, 29500)
    for other in (own("b", "TrainingJob"), own(name, "ServingJob"), own(name, "TrainingJob", namespace="x")):
        assert not may_connect(found, other, rank, 29500)
    assert not any(may_connect(found, source, rank, 29500) for source in (STRANGER, OUTSIDE, AGENT))
    assert may_connect(found, OPERATOR, rank, PROBE_PORT) and not may_connect(found, OPERATOR, rank, 29500)
    assert not may_connect(found, FAKE_OPERATOR, rank, PROBE_PORT)
    assert may_connect(found, STRANGER, own("b", "TrainingJob"), 29500), "other jobs are not concerned"


@pytest.mark.parametrize(
    ("type", "outside"), [("ClusterIP", False), ("NodePort", True), ("LoadBalancer", True)]
)
def test_clients_reach_the_port_of_the_service_only(type: str, outside: bool) -> None:
    now = ToyCluster(make_job(), engine=make_engine()).now
    found = applied(serving.plan(serving_observed(ON, type), now))
    front, rank = own("llm", "ServingJob", "router"), own("llm", "ServingJob", "server", "1")
    front = replace(front, labels={**front.labels, "convoy.dev/endpoint": "true"})
    assert may_connect(found, STRANGER, front, 8080)
    assert may_connect(found, OUTSIDE, front, 8080) is outside
    activator = replace(front, labels={**front.labels, "convoy.dev/endpoint": "activator"})
    assert may_connect(found, STRANGER, activator, 8080)
    for target, port in ((front, 29500), (rank, 8080), (own("llm", "ServingJob", "server"), 8080)):
        assert not may_connect(found, STRANGER, target, port)
        assert may_connect(found, front, target, port)
    assert may_connect(found, OPERATOR, rank, PROBE_PORT)


def test_a_suspended_job_keeps_its_policies_and_a_disabled_setting_removes_them() -> None:
    now = ToyCluster(make_job(), engine=make_engine()).now
    assert len(applied(serving.plan(serving_observed(ON, suspend=True), now))) == 2
    for observed in (serving_observed(NetworkSettings()), serving_observed(NetworkSettings(), suspend=True)):
        made = serving.plan(observed, now)
        assert not applied(made) and NETWORK_POLICIES in made.prune
    cluster = ToyCluster(make_job(), engine=make_engine())
    made = training.plan(cluster.observed(), cluster.now)
    assert not applied(made) and NETWORK_POLICIES in made.prune


def test_agents_reach_the_ports_whose_metrics_they_read() -> None:
    metadata = make_job().metadata
    found = list(policies(ON, trainingjob.KIND, metadata, metrics_ports=(9000, 9000)))
    rank = own(metadata.name, "TrainingJob")
    assert may_connect(found, AGENT, rank, 9000) and not may_connect(found, AGENT, rank, 9001)
    assert not may_connect(found, STRANGER, rank, 9000)


def test_agents_reach_the_metrics_ports_of_all_revisions_that_run() -> None:
    container = {"image": "own:1", "readinessProbe": {"httpGet": {"path": "/", "port": 8080}}}
    role = {"name": "worker", "template": {"spec": {"containers": [container]}}}
    servers = Servers(roles=[{**role, "metrics": {"port": 9000}}]).settle()
    servers.edit(roles=[{**role, "metrics": {"port": 9001}}]).run(3)

    def ports() -> list[int]:
        found = applied(serving.plan(replace(servers.observed(), network=ON), servers.now))
        rank = own("llm", "ServingJob")
        return [port for port in (9000, 9001, 9002) if may_connect(found, AGENT, rank, port)]

    assert len({pod.labels["convoy.dev/revision"] for pod in servers.live()}) == 2
    assert ports() == [9000, 9001]
    servers.settle()
    assert ports() == [9001]


def test_jobs_of_two_kinds_with_one_name_have_different_policies() -> None:
    assert not set(names("TrainingJob", "a")) & set(names("ServingJob", "a"))
    # A ServingJob's name has no dot, so no job's policy has the name of the clients' policy of another.
    assert names("ServingJob", "a")[1] == "servingjob-a.clients"


def test_a_refused_policy_is_the_reason_why_pods_are_missing() -> None:
    cluster = ToyCluster(make_job(), engine=make_engine())
    name = names("TrainingJob", cluster.job.metadata.name)[0]
    observed = replace(cluster.observed(), network=ON, create_errors={name: Refusal("no such luck")})
    status = training.plan(observed, cluster.now).status or {}
    assert f"refused NetworkPolicy {name}: no such luck" in status["message"]
    other = names("ServingJob", "llm")[1]
    made = replace(serving_observed(ON), create_errors={other: Refusal("no such luck")})
    conditions = {one["type"]: one for one in (serving.plan(made, cluster.now).status or {})["conditions"]}
    assert f"{other}: no such luck" in conditions["Degraded"]["message"]
