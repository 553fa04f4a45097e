"""Templates of jobs tried at the API server before the first pods are made from them."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from convoy_controllers.resources import PODS
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway

log = structlog.get_logger(__name__)

Explain = Callable[[Mapping[str, Any], errors.Invalid], Refusal | None]
"""(refused pod, fault) -> the refusal in words of the parent's fields; None where no field is at fault."""

REMEMBERED = 4096
"""Accepted templates that are remembered, of all jobs."""
_OWN = "convoy.dev/"
_NAMED = "app.kubernetes.io/name"
"""Label with the job's name."""


class DryRuns:
    """One request for each template in a namespace, however many jobs have it."""

    def __init__(self, gateway: ApiGateway) -> None:
        self._gateway = gateway
        self._accepted: OrderedDict[str, None] = OrderedDict()
        """Digests, the least recently used first."""

    async def refused(
        self, namespace: str, bodies: Sequence[Mapping[str, Any]], explain: Explain
    ) -> dict[str, Refusal]:
        """Return the first refusal of these pods, one of each role, by pod name; empty if all are accepted.

        Raises errors.ApiError for what may heal by itself.
        """
        for body in bodies:
            digest = _digest(body)
            if digest not in self._accepted and (found := await self._try(namespace, body, explain)):
                return {body["metadata"]["name"]: found}
            self._remember(digest)
        return {}

    def _remember(self, digest: str) -> None:
        self._accepted[digest] = None
        self._accepted.move_to_end(digest)
        if len(self._accepted) > REMEMBERED:
            self._accepted.popitem(last=False)

    async def _try(self, namespace: str, body: Mapping[str, Any], explain: Explain) -> Refusal | None:
        try:
            await self._gateway.dry_run(PODS, namespace, body)
        except errors.AlreadyExists:
            # Names are compared last: the pod itself is valid.
            return None
        except (errors.Forbidden, errors.WebhookFailed) as fault:
            return Refusal(fault.message)
        except errors.Invalid as fault:
            if (found := explain(body, fault)) is not None:
                return found
            # A webhook or a policy; those that do not take part in dry runs refuse them all.
            log.info("a dry run says nothing of the template", why=fault.message)
        return None


def _digest(body: Mapping[str, Any]) -> str:
    """A digest of a pod without what differs between jobs: names, and values of Convoy's own variables."""
    metadata = body["metadata"]
    labels, annotations = metadata["labels"].items(), metadata.get("annotations", {}).items()
    containers = [
        {**one, "env": [entry for entry in one.get("env", ()) if not entry["name"].startswith("CONVOY_")]}
        for one in body["spec"].get("containers", ())
    ]
    shared = [
        metadata.get("namespace"),
        {key: value for key, value in labels if key != _NAMED and not key.startswith(_OWN)},
        {key: value for key, value in annotations if not key.startswith(_OWN)},
        {**body["spec"], "containers": containers},
    ]
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:32]
