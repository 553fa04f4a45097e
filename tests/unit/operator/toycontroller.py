"""The controller of the toy kind. It applies a Service for each ToyServer and reports the number of
replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.unit.crds.toyserver import KIND, ToyServer

from convoy_controllers.children import Apply, Event, owner_reference
from convoy_controllers.controller import Controller, Makes, by_owner
from convoy_controllers.keys import Key
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_controllers.resources import SERVICES
from convoy_crds.reasons.catalogue import Reasons


@dataclass(frozen=True)
class Observed:
    server: ToyServer
    refused: str = ""


def observe(reader: Reader, key: Key) -> Observed | None:
    server = reader.get(KIND, key.name, key.namespace)
    if server is None:
        return None
    refused = reader.refused(server.metadata.uid or "", server.metadata.generation or 0)
    return Observed(server, "; ".join(one.message for one in refused.values()))


def plan(observed: Observed, now: datetime) -> Plan:
    server = observed.server
    wanted = server.spec.replicas
    ready = Event(Reasons.ACCEPTED, "it is served")
    status = {"conditions": [{"type": "Served", "message": observed.refused}]} if observed.refused else {}
    return Plan(
        status={"replicas": wanted, **status},
        children=(Apply(SERVICES, service(server)),) if wanted else (),
        prune=(SERVICES,),
        events=(ready,) if server.status.replicas != wanted else (),
    )


def service(server: ToyServer) -> dict[str, Any]:
    metadata = server.metadata
    owner = owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid or "")
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": metadata.name, "ownerReferences": [owner]},
        "spec": {"ports": [{"port": 80}], "selector": {"toy": metadata.name}},
    }


CONTROLLER = Controller(
    KIND,
    summary="Serves a toy.",
    observe=observe,
    plan=plan,
    makes=(Makes(SERVICES, (Apply,)),),
    watches=(by_owner(KIND, SERVICES),),
)
