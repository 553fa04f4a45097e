"""TrainingJob specs that several tests and benches use."""

from __future__ import annotations

from typing import Any

SMALL = {"steps": 40, "batch": 4, "context": 64, "layers": 2, "width": 64, "heads": 2, "held_out_every": 20}
"""Parameters of the engine `gpt` with which a job ends within seconds."""
ENDLESS = {**SMALL, "steps": 1_000_000}


def memory(interval: str = "2s", **more: Any) -> dict[str, Any]:
    """Return a `spec.checkpoint` with the memory tiers `local` and `peer`, and the tiers in `more`."""
    return {"interval": interval, "tiers": {"local": {}, "peer": {}, **more}}


def on_separate_nodes(job: str, beside: str = "") -> dict[str, Any]:
    """Return a pod template that puts each pod of the job on a different node. With `beside`, the pods
    prefer this node.
    """
    selector = {"matchLabels": {"convoy.dev/job": job}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    affinity: dict[str, Any] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if beside:
        preference = {
            "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [beside]}]
        }
        preferences = [{"weight": 100, "preference": preference}]
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": preferences}
    return {"spec": {"affinity": affinity}}


def single_threaded(role: dict[str, Any]) -> dict[str, Any]:
    """Return a role whose ranks compute with one thread each.

    A container without a limit starts one thread per processor of its node. All nodes share one machine's
    processors, so the threads of several ranks would spin while they wait for one another.
    """
    template = role.get("template", {})
    pod = template.get("spec", {})
    first, *others = pod.get("containers") or [{"name": "worker"}]
    variables = first.get("env", [])
    if all(one["name"] != "OMP_NUM_THREADS" for one in variables):
        variables = [{"name": "OMP_NUM_THREADS", "value": "1"}, *variables]
    containers = [{**first, "env": variables}, *others]
    return {**role, "template": {**template, "spec": {**pod, "containers": containers}}}


def one_role(container: dict[str, Any], replicas: int = 1) -> list[dict[str, Any]]:
    """Return a list of one role, whose pods run `container`."""
    return [{"name": "worker", "replicas": replicas, "template": {"spec": {"containers": [container]}}}]


def own_container(*command: str, **more: Any) -> dict[str, Any]:
    """Return a container that runs `command` instead of an engine."""
    return {"name": "worker", "image": "convoy/torch:dev", "command": list(command), **more}


def memory_job_spec(name: str, steps: int, replicas: int = 2) -> dict[str, Any]:
    """Return the spec of a job whose ranks are on different nodes and save in the nodes' memory."""
    return {
        "engine": {"name": "gpt", "params": {**SMALL, "steps": steps, "held_out_every": steps}},
        "checkpoint": memory("1s"),
        "roles": [{"name": "worker", "replicas": replicas, "template": on_separate_nodes(name)}],
    }
