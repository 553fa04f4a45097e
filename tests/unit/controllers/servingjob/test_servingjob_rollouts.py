"""Tests of rollouts on a small cluster: halts, pauses, undo, roles, and bad specs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import Servers, make_engine

from convoy_controllers.resources import CONTROLLER_REVISIONS, POD_DISRUPTION_BUDGETS, SERVICES
from convoy_controllers.servingjob.traffic import Figures
from convoy_crds.terms import LABEL_REVISION

WORKER = {"name": "worker", "engine": {"name": "lm"}}


def broken_after(servers: Servers) -> Servers:
    """Let only the present revision become ready."""
    known = servers.job.status.update_revision
    servers.good = lambda pod: pod.labels[LABEL_REVISION] == known
    return servers


def test_a_rollout_that_makes_no_progress_halts_and_names_the_cause() -> None:
    servers = broken_after(Servers().settle()).size(1).run(3)
    servers.exit("llm-worker-2-0", 1, stderr="ValueError: cannot load").run(3)
    servers.wait(600).run(3)
    assert servers.condition["Progressing"] == ("False", "ProgressDeadlineExceeded")
    message = servers.message("Progressing")
    for words in (
        "600 s",
        "2 older replicas keep serving",
        "ValueError: cannot load",
        "convoy rollout undo llm",
    ):
        assert words in message
    assert servers.serving == 2 and servers.job.status.reason == "ProgressDeadlineExceeded"
    assert servers.condition["Available"] == ("True", "Serving")


def test_a_halted_rollout_is_not_written_again() -> None:
    servers = broken_after(Servers().settle()).size(1).run(3).wait(700).settle()
    assert servers.wait(3600).step().status is None


def test_a_halted_rollout_goes_on_when_its_replica_becomes_ready() -> None:
    servers = broken_after(Servers().settle()).size(1).run(3).wait(700).run(3)
    servers.good = lambda pod: True
    servers.settle()
    assert servers.condition["Progressing"] == ("True", "RolloutComplete")


def test_a_first_replica_that_fails_halts_the_rollout_before_the_deadline() -> None:
    servers = Servers(recovery={"maxRestarts": 0}).settle().size(1).run(3)
    servers.exit("llm-worker-2-0", 1, stderr="ValueError: boom").run(3)
    assert servers.condition["Progressing"] == ("False", "RevisionFailed")
    assert "ValueError: boom" in servers.message("Progressing") and servers.serving == 2


def test_loading_counts_as_progress() -> None:
    servers = broken_after(Servers().settle()).size(1).run(3)
    for _ in range(20):
        servers.rank("llm-worker-2-0", loading=servers.now.timestamp())
        servers.wait(100).step()
        assert servers.condition["Progressing"] == ("True", "RollingOut")
    servers.wait(601).step()
    assert servers.condition["Progressing"] == ("False", "ProgressDeadlineExceeded")


def test_undo_returns_to_a_stored_revision_and_stays_there() -> None:
    servers = Servers().settle()
    first = servers.job.status.update_revision
    broken_after(servers).size(1).run(5)
    servers.rollout(revision=first).settle()
    assert {pod.labels[LABEL_REVISION] for pod in servers.pods.values()} == {first}
    assert servers.condition["Progressing"] == ("True", "RolloutComplete")
    servers.size(2).settle()
    assert servers.job.status.update_revision == first
    assert servers.job.status.revisions[0].name == first, "it has the highest number again"
    assert "convoy rollout unpin llm" in servers.message("Progressing"), "size 2 has no effect"
    servers.rollout(revision="").settle()
    assert "unpin" not in servers.message("Progressing")


def test_an_unknown_revision_is_named_and_changes_nothing() -> None:
    servers = Servers().settle().rollout(revision="abc").settle()
    assert servers.condition["Valid"] == ("False", "InvalidSpec")
    assert "pins" not in servers.message("Progressing")
    message = servers.message("Valid")
    assert message.startswith("spec.rollout.revision: there is no stored revision 'abc'; name one of: ")
    assert servers.serving == 2


def test_only_the_newest_revisions_are_stored() -> None:
    servers = Servers()
    for size in range(8):
        servers.size(size).settle()
    assert len(servers.revisions) == 5
    assert [one.number for one in servers.job.status.revisions] == [8, 7, 6, 5, 4]


def test_a_paused_rollout_changes_nothing_and_goes_on_later() -> None:
    servers = Servers().settle().rollout(paused=True).size(1).settle()
    assert servers.condition["Progressing"] == ("Unknown", "RolloutPaused")
    assert len({pod.labels[LABEL_REVISION] for pod in servers.pods.values()}) == 1
    servers.wait(5000).step()
    assert servers.condition["Progressing"] == ("Unknown", "RolloutPaused")
    servers.rollout(paused=False).settle()
    assert servers.job.status.updated_ready_replicas == 2


def test_scaling_changes_no_revision() -> None:
    servers = Servers().settle().edit(replicas=5).settle()
    assert servers.job.status.ready == "5/5" and len(servers.revisions) == 1
    servers.edit(replicas=0).settle()
    assert servers.job.status.ready == "0/0" and servers.condition["Available"] == ("True", "ScaledToZero")


def test_a_new_image_of_the_engine_rolls() -> None:
    servers = Servers().settle()
    servers.engines["lm"] = make_engine(image="convoy/serving:next")
    servers.settle()
    images = {
        body["spec"]["containers"][0]["image"]
        for name, body in servers.manifests.items()
        if name in servers.pods
    }
    assert images == {"convoy/serving:next"} and len(servers.revisions) == 2


def test_a_stored_revision_with_another_order_of_fields_is_the_same() -> None:
    servers = Servers(roles=[{"name": "worker", "engine": {"name": "lm", "params": {"size": None}}}])
    servers.engines["lm"] = make_engine(paramsSchema={"type": "object", "additionalProperties": True})
    servers.settle()
    assert [one.number for one in servers.job.status.revisions] == [1]


def test_two_roles_have_replicas_of_their_own() -> None:
    roles = [{**WORKER, "groupSize": 2}, {"name": "router", "engine": {"name": "lm"}, "replicas": 3}]
    servers = Servers(roles=roles, scaledRole="worker", service={"role": "router"}).settle()
    found = {one.name: (one.desired, one.ready) for one in servers.job.status.roles}
    assert found == {"worker": (2, 2), "router": (3, 3)}
    assert servers.job.status.ready == "5/5" and servers.job.status.replicas == 2
    assert len(servers.live(role="worker")) == 4
    body = servers.objects[SERVICES, "llm"]
    wanted = body["spec"]["selector"].items()
    selected = sorted(pod.name for pod in servers.pods.values() if wanted <= pod.labels.items())
    assert selected == ["llm-router-0-0", "llm-router-1-0", "llm-router-2-0"]


def endpoints(servers: Servers) -> list[str]:
    """Return the ready pods that the Service selects."""
    wanted = servers.objects[SERVICES, "llm"]["spec"]["selector"].items()
    return [pod.name for pod in servers.live() if pod.ready and wanted <= pod.labels.items()]


@pytest.mark.parametrize("breaks", [False, True])
def test_a_renamed_role_serves_until_the_other_one_does(breaks: bool) -> None:
    servers = Servers().settle()
    old = servers.job.status.update_revision
    if breaks:
        servers.good = lambda pod: pod.labels["convoy.dev/revision"] == old
    servers.edit(roles=[{"name": "other", "engine": {"name": "lm"}}])
    for _ in range(20):
        servers.step()
        assert len(endpoints(servers)) >= 2
        assert servers.condition["Available"] == ("True", "Serving")
        servers.wait(2)
    roles = {pod.labels["convoy.dev/role"] for pod in servers.live()}
    assert roles == ({"worker", "other"} if breaks else {"other"})


def test_a_broken_revision_with_another_role_halts_and_leaves_the_old_one() -> None:
    servers = Servers(recovery={"maxRestarts": 0}).settle()
    servers.edit(roles=[{"name": "other", "engine": {"name": "lm"}}]).run(3)
    servers.exit("llm-other-0-0").exit("llm-other-1-0").run(5)
    assert servers.condition["Progressing"] == ("False", "RevisionFailed")
    assert len(servers.live(role="worker")) == 2 and len(endpoints(servers)) >= 2


def test_another_port_reaches_the_pods_of_both_revisions() -> None:
    servers = Servers().settle()
    servers.edit(service={"port": 9000}).step()
    (port,) = servers.objects[SERVICES, "llm"]["spec"]["ports"]
    assert port["port"] == 9000 and len(endpoints(servers)) == 2
    servers.run(3)
    numbers = set()
    for name in endpoints(servers):
        ports = servers.manifests[name]["spec"]["containers"][0]["ports"]
        (own,) = (one["containerPort"] for one in ports if one["name"] == port["targetPort"])
        numbers.add(own)
    assert numbers == {8080, 9000}


def test_a_removed_role_is_deleted() -> None:
    roles = [WORKER, {"name": "router", "engine": {"name": "lm"}, "replicas": 1}]
    servers = Servers(roles=roles, scaledRole="worker").settle()
    servers.edit(roles=[WORKER], scaledRole=None).settle()
    assert not servers.live(role="router") and servers.job.status.ready == "2/2"


TEMPLATE: dict[str, Any] = {
    "image": "own:1",
    "command": ["serve"],
    "ports": [{"containerPort": 8080}],
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
}


def own(**spec: Any) -> list[dict[str, Any]]:
    return [{"name": "worker", "groupSize": 2, "template": {"spec": {"containers": [TEMPLATE], **spec}}}]


def test_an_own_readiness_probe_applies_to_slot_0() -> None:
    servers = Servers(replicas=1, roles=own()).settle()
    first, second = (servers.manifests[f"llm-worker-0-{slot}"]["spec"]["containers"][0] for slot in (0, 1))
    assert first["readinessProbe"] == TEMPLATE["readinessProbe"] and "readinessProbe" not in second
    assert "startupProbe" not in first and first["command"][0] == "python3"
    assert servers.assigned[0].command == ("serve",)


def test_an_own_program_serves_until_the_proxies_have_dropped_it() -> None:
    for roles, delays, lag in ((own(), ["3", "33"], None), ([{**WORKER, "groupSize": 2}], [None, None], "3")):
        servers = Servers(replicas=1, roles=roles).settle()
        for slot, delay in enumerate(delays):
            container = servers.manifests[f"llm-worker-0-{slot}"]["spec"]["containers"][0]
            variables = {one["name"]: one.get("value") for one in container["env"]}
            assert variables.get("CONVOY_TERM_DELAY_SECONDS") == delay
            assert variables.get("CONVOY_ENDPOINT_LAG_SECONDS") == lag


@pytest.mark.parametrize("own_ports", [[], [8080], [9000], [8080, 9000]])
@pytest.mark.parametrize("host", [True, False])
def test_a_port_of_the_nodes_network_is_declared_once(host: bool, own_ports: list[int]) -> None:
    template = {
        "hostNetwork": host,
        "containers": [{"ports": [{"containerPort": one} for one in own_ports]}],
    }
    roles = [{**WORKER, "groupSize": 2, "template": {"spec": template}}]
    servers = Servers(replicas=1, roles=roles).settle()
    first, second = (servers.manifests[f"llm-worker-0-{slot}"]["spec"]["containers"][0] for slot in (0, 1))
    numbers = [[one["containerPort"] for one in pod["ports"]] for pod in (first, second)]
    others = [one for one in own_ports if one != 8080]
    expected = [[*others, 8080, 8081], [*own_ports, 8081]] if host else [[*own_ports, 8080], own_ports]
    assert numbers == expected


@pytest.mark.parametrize("ports", [5, "8080", ["8080"], [{"name": "x"}], {"containerPort": 8080}])
def test_malformed_ports_are_left_to_the_api_server(ports: Any) -> None:
    roles = own(hostNetwork=True, containers=[{**TEMPLATE, "ports": ports}])
    servers = Servers(replicas=1, roles=roles)
    servers.step()
    found = servers.manifests["llm-worker-0-0"]["spec"]["containers"][0]["ports"]
    assert found == ports or ports[0] in found


def test_the_launcher_answers_the_probes_of_an_engine() -> None:
    servers = Servers(replicas=1).settle()
    container = servers.manifests["llm-worker-0-0"]["spec"]["containers"][0]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert (variables["CONVOY_SERVING_PORT"], variables["CONVOY_READY_PORT"]) == ("8080", "8081")
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe": "/startup", "readinessProbe": "/ready", "livenessProbe": "/live"}
    assert (
        container["readinessProbe"]["periodSeconds"],
        container["readinessProbe"]["failureThreshold"],
    ) == (1, 2)


def test_a_token_comes_as_a_file() -> None:
    servers = Servers(service={"auth": {"type": "Token", "secretName": "tokens"}}).settle()
    spec = servers.manifests["llm-worker-0-0"]["spec"]
    volume = next(one for one in spec["volumes"] if one["name"] == "convoy-auth")
    assert volume["secret"] == {"secretName": "tokens"}
    variables = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert variables["CONVOY_AUTH_TOKEN_FILE"] == "/var/run/convoy-auth/token"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown engine": (
        {"roles": [{"name": "worker", "engine": {"name": "llama"}}]},
        "UnknownEngine",
        "spec.roles[0].engine.name: there is no Engine 'llama'; there are: lm, trainer",
    ),
    "training engine": (
        {"roles": [{"name": "worker", "engine": {"name": "trainer"}}]},
        "WrongRoleKind",
        "spec.roles[0].engine.name: Engine 'trainer' is for training, not for serving",
    ),
    "parameter": (
        {"roles": [{"name": "worker", "engine": {"name": "lm", "params": {"size": "big"}}}]},
        "InvalidParams",
        "spec.roles[0].engine.params.size: 'big' is not of type 'integer'; see the parameters of Engine 'lm'",
    ),
    "volume": (
        {"roles": own(volumes=[{"name": "convoy-model", "emptyDir": {}}])},
        "InvalidSpec",
        "spec.roles[0].template.spec.volumes[0].name: 'convoy-model' is reserved for Convoy",
    ),
    "port": (
        {"roles": own(), "service": {"port": 9000}},
        "InvalidSpec",
        "spec.roles[0].template.spec.containers[0].ports: requests would go to port 9000, but the container",
    ),
    "root": (
        {"roles": own(securityContext={"runAsUser": 0})},
        "InvalidSpec",
        "spec.roles[0].template.spec.securityContext.runAsUser: user 0 is root",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_spec_is_named_and_running_replicas_go_on(case: str) -> None:
    spec, reason, words = BAD[case]
    servers = Servers()
    servers.engines["trainer"] = make_engine("trainer", roleKind="Training")
    servers.settle().edit(**spec).settle()
    assert servers.condition["Valid"] == ("False", reason) and servers.message("Valid").startswith(words)
    assert servers.job.status.ready == "2/2" and servers.job.status.reason == reason


def test_a_bad_spec_keeps_the_service_although_the_status_is_lost() -> None:
    servers = Servers().settle()
    servers.engines.clear()
    servers.job = servers.job.model_copy(update={"status": type(servers.job.status)()})
    servers.settle()
    assert len(endpoints(servers)) == 2 and servers.condition["Valid"] == ("False", "UnknownEngine")


def test_replicas_of_a_deleted_revision_are_replaced_within_the_budget() -> None:
    servers = Servers(replicas=4).settle()
    first = servers.job.status.update_revision
    servers.size(1).run(7)
    del servers.objects[CONTROLLER_REVISIONS, f"llm-{first}"]
    for _ in range(25):
        servers.step()
        assert servers.serving >= 4
        servers.wait(2)
    assert {pod.labels["convoy.dev/revision"] for pod in servers.live()} != {first}
    assert servers.job.status.ready == "4/4"


@pytest.mark.parametrize("case", BAD)
def test_a_bad_spec_starts_no_pod(case: str) -> None:
    spec, _reason, words = BAD[case]
    servers = Servers(**spec)
    servers.engines["trainer"] = make_engine("trainer", roleKind="Training")
    servers.settle()
    assert not servers.pods and words in servers.message("Available")
    assert CONTROLLER_REVISIONS not in {kind for kind, _ in servers.objects}


def test_a_refused_pod_is_named() -> None:
    servers = Servers()
    servers.refused["llm-worker"] = "exceeded quota: pods"
    servers.run(3)
    assert servers.condition["Degraded"] == ("True", "PodRejected")
    assert "exceeded quota" in servers.message("Progressing")
    servers.refused.clear()
    assert servers.settle().job.status.ready == "2/2"


@pytest.mark.parametrize(
    ("p95", "ttft", "expected"),
    [
        (0.1, 0.05, ("True", "ObjectivesMet")),
        (0.3, 0.05, ("False", "ObjectivesMissed")),
        (0.201, 0.05, ("False", "ObjectivesMissed")),
        (None, 0.07, ("False", "ObjectivesMissed")),
        (None, None, ("Unknown", "ObjectivesUnknown")),
    ],
)
def test_objectives_are_compared_with_the_figures(
    p95: float | None, ttft: float | None, expected: tuple[str, str]
) -> None:
    servers = Servers(slo={"p95Ms": 200, "ttftMs": 60})
    servers.traffic = Figures(p95=p95, ttft=ttft)
    servers.settle()
    assert servers.condition["SLOMet"] == expected


def test_an_invalid_spec_that_renames_a_role_keeps_the_replicas() -> None:
    servers = Servers(replicas=3).settle()
    servers.edit(roles=[{"name": "server", "engine": {"name": "unknown"}}]).run(10)
    assert servers.condition["Valid"] == ("False", "UnknownEngine")
    assert servers.serving == 3 and len(servers.live(role="worker")) == 3
    assert servers.objects[POD_DISRUPTION_BUDGETS, "llm-worker"]["spec"]["minAvailable"] == 2
    servers.edit(replicas=1).settle()
    assert servers.serving == 1, "the number is that of the role with the other name"


def test_an_invalid_spec_that_removes_a_role_keeps_the_replicas() -> None:
    router = {"name": "router", "engine": {"name": "lm"}, "replicas": 2}
    servers = Servers(roles=[WORKER, router], scaledRole="worker").settle()
    servers.edit(roles=[{"name": "worker", "engine": {"name": "unknown"}}]).run(10)
    assert len(servers.live(role="router")) == 2 and servers.serving == 4


def test_an_undo_of_a_renamed_role_brings_its_replicas_back() -> None:
    servers = Servers().settle()
    first = servers.job.status.update_revision
    servers.edit(roles=[{"name": "server", "engine": {"name": "lm"}}]).settle()
    assert len(servers.live(role="server")) == 2
    servers.rollout(revision=first).settle()
    assert len(servers.live(role="worker")) == 2 and not servers.live(role="server")


def test_parameters_that_do_not_fit_into_the_environment_are_refused() -> None:
    role = {"name": "worker", "engine": {"name": "lm", "params": {"note": "x" * 131_072}}}
    servers = Servers(roles=[role])
    servers.engines["lm"] = make_engine(paramsSchema={"properties": {"note": {}}})
    servers.settle()
    assert not servers.pods and servers.condition["Valid"] == ("False", "InvalidSpec")
    assert "spec.roles[0].engine.params: 1310" in servers.message("Valid")
