"""Dry runs of pod templates at the API server, before the first pods are created from them."""

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
"""(rejected pod, error) -> the refusal in terms of the parent's fields; None if no field is at fault."""

REMEMBERED = 4096
"""Number of accepted templates that are remembered over all jobs."""
_OWN = "convoy.dev/"
_NAMED = "app.kubernetes.io/name"
"""Label that holds the job's name."""


class DryRuns:
    """Dry runs, one request for each different template in a namespace, however many jobs share it."""

    def __init__(self, gateway: ApiGateway) -> None:
        self._gateway = gateway
        self._accepted: OrderedDict[str, None] = OrderedDict()
        """Digests of accepted templates, the least recently used first."""

    async def refused(
        self, namespace: str, bodies: Sequence[Mapping[str, Any]], explain: Explain
    ) -> dict[str, Refusal]:
        """Return the first refusal among these pods (one per role), by pod name; empty if all are accepted.

        Raise errors.ApiError for faults that a retry may cure.
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
            # The API server compares names last, so the pod itself is valid.
            return None
        except (errors.Forbidden, errors.WebhookFailed) as fault:
            return Refusal(fault.message)
        except errors.Invalid as fault:
            if (found := explain(body, fault)) is not None:
                return found
            # The cause is a webhook or a policy. One that does not support dry runs rejects all of them.
            log.info(
                "dry run rejected for a reason outside the template, pods are created anyway",
                why=fault.message,
            )
        return None


def _digest(body: Mapping[str, Any]) -> str:
    """Return a digest of a pod without the parts that differ between jobs: names, and values of Convoy's
    own variables.
    """
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
