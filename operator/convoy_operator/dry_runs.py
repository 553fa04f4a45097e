"""Dry runs of pod templates at the API server, before the first pods are created from them."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from convoy_controllers.resources import PODS
from convoy_controllers.workers.refusal import Refusal
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway

log = structlog.get_logger(__name__)

Explain = Callable[[Mapping[str, Any], errors.Invalid], Refusal | None]
"""Function that receives a rejected pod and the error. It returns a refusal that names the parent's fields,
or None if no field of the parent is at fault.
"""

REMEMBERED = 4096
"""Maximum number of accepted templates that are remembered for all jobs together."""
_OWN = "convoy.dev/"
_NAMED = "app.kubernetes.io/name"
"""Label that holds the job's name."""


class DryRuns:
    """Dry runs of pod templates. Each template in a namespace costs one request, however many jobs use the
    template.
    """

    def __init__(self, gateway: ApiGateway) -> None:
        self._gateway = gateway
        self._accepted: OrderedDict[str, None] = OrderedDict()
        """Digests of the accepted templates, in the order of their last use."""

    async def refused(
        self, namespace: str, bodies: Sequence[Mapping[str, Any]], explain: Explain
    ) -> dict[str, Refusal]:
        """Send a dry run for each of these pods, one pod for each role of a job. Return the first refusal,
        by the pod's name. The result is empty if the API server accepts all pods.

        Raises errors.ApiError for faults that a retry may cure.
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
            # The dry run uses the name of a pod that already exists. The API server checks the name after
            # everything else, so this error shows that it accepts the rest of the pod.
            return None
        except (errors.Forbidden, errors.WebhookFailed) as fault:
            return Refusal(fault.message)
        except errors.Invalid as fault:
            if (found := explain(body, fault)) is not None:
                return found
            # No field of the template is at fault, so a webhook or a policy rejects the pod. Accept the pod
            # all the same: a webhook that does not support dry runs rejects every dry run.
            log.info(
                "dry run rejected for a reason outside the template, pods are created anyway",
                why=fault.message,
            )
        return None


def _digest(body: Mapping[str, Any]) -> str:
    """Return a digest of a pod. It leaves out what differs between jobs: names, and Convoy's own labels,
    annotations and variables.
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
