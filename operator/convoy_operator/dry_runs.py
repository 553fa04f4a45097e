"""Templates of jobs tried at the API server before the first pods are made from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from convoy_controllers.trainingjob.refusal import Refusal, findings, refusal
from convoy_crds.terms import LABEL_ROLE
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway
from convoy_operator.resources import PODS
from convoy_operator.views import Parent

log = structlog.get_logger(__name__)


class DryRuns:
    """One request for each role and generation of a job's spec. Accepted templates are remembered."""

    def __init__(self, gateway: ApiGateway) -> None:
        self._gateway = gateway
        self._accepted: dict[str, dict[str, str]] = {}

    async def refused(self, parent: Parent, bodies: Sequence[Mapping[str, Any]]) -> dict[str, Refusal]:
        """By pod name, the first of these pods, one of each role, that the API server would not create.

        Raises errors.ApiError for what may heal by itself.
        """
        accepted = self._accepted.setdefault(parent.uid, {}) if bodies else {}
        for body in bodies:
            role, digest = body["metadata"]["labels"][LABEL_ROLE], _digest(parent, body)
            if accepted.get(role) == digest:
                continue
            if (found := await self._try(parent, body, role)) is not None:
                return {body["metadata"]["name"]: found}
            accepted[role] = digest
        return {}

    def drop(self, uid: str) -> None:
        """Removes what is remembered of a job."""
        self._accepted.pop(uid, None)

    async def _try(self, parent: Parent, body: Mapping[str, Any], role: str) -> Refusal | None:
        try:
            await self._gateway.dry_run(PODS, parent.namespace, body)
        except errors.AlreadyExists:
            # Names are compared last: the pod itself is valid.
            return None
        except (errors.Forbidden, errors.WebhookFailed) as fault:
            return Refusal(fault.message)
        except errors.Invalid as fault:
            job = TrainingJob.model_validate(parent.raw)
            if found := findings(job, body, role, fault.message, fault.causes):
                return refusal(found)
            # A webhook or a policy; those that do not take part in dry runs refuse them all.
            log.info("a dry run says nothing of the template", why=fault.message)
        return None


def _digest(parent: Parent, body: Mapping[str, Any]) -> str:
    """A digest of what the pods of a role share, but for the nodes that they avoid."""
    shared = {name: value for name, value in body["spec"].items() if name != "affinity"}
    text = json.dumps([parent.generation, shared], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
