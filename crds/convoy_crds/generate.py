"""Writes the CustomResourceDefinitions beside the models: `python -m convoy_crds.generate [--check]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from convoy_crds.applied import without_drift
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.generated import write_or_check
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.meta import GROUP, VERSION
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.structural import structural
from convoy_crds.trainingjob import TrainingJob

CRDS = Path(__file__).parent.parent
FOLDERS = (CRDS, CRDS.parent / "charts" / "convoy" / "files" / "crds")
"""Beside the models, and where the chart can read them."""


@dataclass(frozen=True)
class Kind:
    """What a CustomResourceDefinition says besides the schema."""

    model: type[BaseModel]
    plural: str
    short_names: tuple[str, ...]
    scope: str
    columns: tuple[dict[str, Any], ...]
    selectable: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """The kind, such as TrainingJob."""
        return self.model.__name__


def _column(name: str, path: str, kind: str = "string", wide: bool = False) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": 1} if wide else {})


KINDS = (
    Kind(
        TrainingJob,
        "trainingjobs",
        ("tj",),
        "Namespaced",
        (
            _column("Phase", ".status.phase"),
            _column("Ready", ".status.ready"),
            _column("Step", ".status.progress.step", "integer"),
            _column("%", ".status.progress.percent", "integer"),
            _column("Checkpoint", ".status.checkpoint.time", "date"),
            _column("Tier", ".status.checkpoint.tier"),
            _column("Restarts", ".status.restarts.total", "integer"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Engine", ".spec.engine.name", wide=True),
            _column("Loss", ".status.progress.loss", "number", wide=True),
            _column("Diverged", ".status.progress.diverged", "boolean", wide=True),
            _column("Incarnation", ".status.incarnation", "integer", wide=True),
            _column("Goodput", ".status.goodput.ratio", "number", wide=True),
            _column("Reason", ".status.reason", wide=True),
            _column("Message", ".status.message", wide=True),
        ),
        selectable=(".status.phase",),
    ),
    Kind(
        Engine,
        "engines",
        ("eng",),
        "Cluster",
        (
            _column("For", ".spec.roleKind"),
            _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            _column("Image", ".spec.image"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
            _column("Description", ".spec.description", wide=True),
        ),
    ),
    Kind(
        CheckpointStore,
        "checkpointstores",
        ("cstore",),
        "Cluster",
        (
            _column("Bucket", ".spec.s3.bucket"),
            _column("Endpoint", ".spec.s3.endpoint"),
            _column("Claim", ".spec.volume.claimName"),
            _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            _column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Probed", ".status.probedAt", "date", wide=True),
            _column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
        ),
    ),
    Kind(
        GuardPolicy,
        "guardpolicies",
        ("gp",),
        "Cluster",
        (
            _column("Mode", ".spec.mode"),
            _column("OnJoin", ".spec.onJoin"),
            _column("Nodes", ".status.nodes", "integer"),
            _column("Suspect", ".status.states.suspect", "integer"),
            _column("Quarantined", ".status.states.quarantined", "integer"),
            _column("Condemned", ".status.states.condemned", "integer"),
            _column("Breaker", ".status.breaker.state"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Since", ".status.breaker.since", "date", wide=True),
            _column("Message", ".status.breaker.message", wide=True),
        ),
    ),
    Kind(
        NodeHealth,
        "nodehealths",
        ("nh",),
        "Cluster",
        (
            _column("Node", ".status.nodeRef.name"),
            _column("State", ".status.state"),
            _column("Since", ".status.since", "date"),
            _column("Qualified", '.status.conditions[?(@.type=="Qualified")].status'),
            _column("Reason", '.status.conditions[?(@.type=="Qualified")].reason'),
            _column("Lemon", ".status.lemonScore", "number"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Until", ".status.qualifiedUntil", "string", wide=True),
            _column("Rack", ".status.nodeRef.rack", wide=True),
            _column("Repair", ".status.repair.action", wide=True),
            _column("Message", ".status.message", wide=True),
        ),
        selectable=(".status.state", ".status.nodeRef.name"),
    ),
    Kind(
        HealthSweep,
        "healthsweeps",
        ("hs",),
        "Cluster",
        (
            _column("Phase", ".status.phase"),
            _column("Progress", ".status.progress"),
            _column("Failed", ".status.failed", "integer"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Tiers", ".spec.tiers", wide=True),
            _column("Completed", ".status.completionTime", "date", wide=True),
            _column("Message", ".status.message", wide=True),
        ),
        selectable=(".status.phase",),
    ),
    Kind(
        HardwareClass,
        "hardwareclasses",
        ("hc",),
        "Cluster",
        (
            _column("CPU", ".status.facts.cpu\\.model"),
            _column("Nodes", ".status.nodes", "integer"),
            _column("Referenced", ".status.referenced", "integer"),
            _column("Drifted", ".status.drifted"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Memory", ".status.facts.memory\\.gib", wide=True),
            _column("Kernel", ".status.facts.kernel", wide=True),
            _column("Driver", ".status.facts.driver\\.nvidia", wide=True),
        ),
    ),
)


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    schema = structural(kind.model.model_json_schema(by_alias=True))
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    properties["metadata"] = {"type": "object"}
    properties["status"].pop("default")
    properties["spec"] = without_drift(properties["spec"])
    schema["required"] = ["spec"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": ["convoy"],
            },
            "scope": kind.scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(kind.columns),
                    **(
                        {"selectableFields": [{"jsonPath": path} for path in kind.selectable]}
                        if kind.selectable
                        else {}
                    ),
                }
            ],
        },
    }


def rendered() -> dict[Path, str]:
    """Every generated file and its content."""
    head = "# Generated by python -m convoy_crds.generate from the models; do not edit.\n"
    files: dict[Path, str] = {}
    for kind in KINDS:
        text = head + yaml.safe_dump(definition(kind), sort_keys=False, width=110)
        files |= {folder / f"{kind.plural}.yaml": text for folder in FOLDERS}
    return files


def main() -> None:
    """Writes the files, or checks them."""
    write_or_check(rendered(), "convoy_crds.generate")


if __name__ == "__main__":
    main()
