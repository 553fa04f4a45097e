"""Random mutations of valid TrainingJobs, similar to mistakes of users and tools. Each mutation is
determined by its number.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

Json = Any
Place = tuple[Any, Any]
"""A map or list, with the key or the index of one of its values."""

FULL: dict[str, Any] = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}, "creationTimestamp": None},
    "spec": {
        "containers": [
            {
                "name": "worker",
                "image": "example.com/train:1",
                "command": ["python", "train.py"],
                "args": ["--steps", "5"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "settings"}}],
                "ports": [{"containerPort": 8080, "name": "http"}],
                "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {"cpu": "2", "memory": "2Gi"},
                },
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
                "securityContext": {
                    "runAsUser": 1000,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                },
                "workingDir": "/data",
                "livenessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 10},
                "imagePullPolicy": "IfNotPresent",
            },
            {"name": "sidecar", "image": "example.com/logs:1"},
        ],
        "initContainers": [
            {
                "name": "fetch",
                "image": "example.com/fetch:1",
                "command": ["fetch"],
                "securityContext": {"runAsUser": 1000},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "keys", "projected": {"sources": [{"secret": {"name": "keys"}}]}},
        ],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]
                        },
                    }
                ],
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"team": "a"}},
                        },
                    }
                ]
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"team": "a"}},
            }
        ],
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "default",
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "activeDeadlineSeconds": 3600,
        "shareProcessNamespace": False,
    },
}
SMALL: dict[str, Any] = {
    "spec": {
        "containers": [{"name": "worker", "image": "example.com/train:1", "command": ["python", "x.py"]}]
    }
}
ADDED: dict[str, Any] = {
    "spec": {
        "containers": [{"name": "worker", "resources": {"limits": {"cpu": "2"}}}],
        "affinity": {"nodeAffinity": {}},
    }
}
WORDS = (
    "x",
    "",
    "60s",
    "true",
    "1Gi",
    "Ünïcode-☃",
    "a b",
    "\u0000",
    "convoy-agent",
    "/var/run/convoy",
    "$(A)",
    "~",
)


def job(number: int) -> dict[str, Any]:
    """Return the job with this number: a valid job after one to three mutations."""
    random_ = random.Random(number)
    template = copy.deepcopy(random_.choice((FULL, FULL, SMALL, ADDED)))
    engine = {"engine": {"name": "gpt", "params": {"steps": 5}}} if template == ADDED else {}
    role = {"name": "worker", "replicas": random_.choice((1, 1, 2)), "template": template}
    whole: dict[str, Any] = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"fuzz-{number}"},
        "spec": {**engine, "roles": [role], "recovery": {"avoidRepeatOffenders": 1}},
    }
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        # Mutate the template in most cases, otherwise any field of the spec.
        root = whole["spec"]["roles"][0] if random_.random() < 0.9 and _has_role(whole) else whole
        places = list(_places(root.get("template") if root is not whole else root["spec"]))
        if places:
            random_.choice(MUTATIONS)(random_, random_.choice(places))
    return whole


def _has_role(whole: dict[str, Any]) -> bool:
    roles = whole["spec"].get("roles")
    return isinstance(roles, list) and bool(roles) and isinstance(roles[0], dict)


def _places(value: Json, depth: int = 0) -> list[Place]:
    """Return every place in a value. Values that an earlier mutation nested very deeply are left out."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    found: list[Place] = [(value, key) for key in keys][:200]
    return found + [more for key in keys if depth < 20 for more in _places(value[key], depth + 1)][:400]


def _null(_: random.Random, place: Place) -> None:
    place[0][place[1]] = None


def _delete(_: random.Random, place: Place) -> None:
    del place[0][place[1]]


def _other_type(random_: random.Random, place: Place) -> None:
    values: tuple[Json, ...] = (
        {}, [], "", 0, 1, -1, 1.5, True, False, 2**31, 2**53, 2**63 - 1, 1e30, [None], {"a": None},
        {"a": "b"}, ["a"], [{}], [[]], [1], {"a": 1}, {"name": "a"}, [{"name": None}],
    )  # fmt: skip
    place[0][place[1]] = copy.deepcopy(random_.choice(values))


def _word(random_: random.Random, place: Place) -> None:
    place[0][place[1]] = random_.choice(WORDS)


def _as_text(_: random.Random, place: Place) -> None:
    place[0][place[1]] = str(place[0][place[1]])


def _duplicate(random_: random.Random, place: Place) -> None:
    holder, key = place
    if isinstance(holder, list):
        holder.insert(random_.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    else:
        holder[f"{key}2"] = copy.deepcopy(holder[key])


def _rename(random_: random.Random, place: Place) -> None:
    holder, key = place
    if isinstance(holder, dict):
        value = holder.pop(key)
        names = (key[:-1], key.capitalize(), key.upper(), f"{key}s", key[:1].upper() + key[1:], "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in key
        ), "to_dict", "model_config", "")  # fmt: skip
        holder[random_.choice(names)] = value


def _huge(random_: random.Random, place: Place) -> None:
    holder, key = place
    value = holder[key] if len(str(holder[key])) < 5_000 else "x"
    values: tuple[Json, ...] = (
        "x" * 5_000,
        "x" * 300_000,
        [value] * 300,
        {f"k{n}": value for n in range(300)},
    )
    holder[key] = random_.choice(values)


def _nest(random_: random.Random, place: Place) -> None:
    holder, key = place
    for _ in range(random_.choice((1, 1, 2, 30, 70))):
        holder[key] = random_.choice(([holder[key]], {"a": holder[key]}))


def _swap(random_: random.Random, place: Place) -> None:
    """Replace a map by a list, or a list by a map."""
    holder, key = place
    value = holder[key]
    if isinstance(value, dict):
        holder[key] = [{"name": name, "value": one} for name, one in value.items()]
    elif isinstance(value, list):
        named = all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in value)
        holder[key] = (
            {one["name"]: one for one in value} if named else {str(n): one for n, one in enumerate(value)}
        )
    else:
        holder[key] = [value]


MUTATIONS: tuple[Callable[[random.Random, Place], None], ...] = (
    _null, _null, _delete, _other_type, _other_type, _word,
    _as_text, _duplicate, _rename, _huge, _nest, _swap,
)  # fmt: skip
