"""The executor of a plan's children. A child is one operation: create, apply, patch, delete, end or evict
an object.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson
import structlog

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import (
    Apply,
    Check,
    Child,
    Create,
    Delete,
    EndPod,
    EvictPod,
    Patch,
    PatchStatus,
)
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.resources import PODS, Resource
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.terms import ANNOTATION_INTENT, LABEL_MANAGED, OPERATOR
from convoy_operator import errors, mutated, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.events import EventRecorder
from convoy_operator.field_conflicts import FieldConflicts
from convoy_operator.gateway import ApiGateway, ensure
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

EVICT_SECONDS = 15.0
"""Minimum number of seconds between two attempts to evict the same pod. A PodDisruptionBudget may forbid an
attempt.
"""
STRIPPED = (
    "admission removed {what}, which Convoy needs to find the pod, so the pod was deleted: exclude pods with "
    "label convoy.dev/job from the mutating webhooks and policies that change these fields"
)
NAME_IN_USE = "a pod of that name exists and is not this job's; delete that pod or rename the job"
APPLIED_NAME_IN_USE = "{kind} {name} exists and has another owner; delete it or rename its parent"


class Owner(Protocol):
    """The object that children belong to."""

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for a cluster-scoped object."""

    @property
    def name(self) -> str:
        """The object's name."""

    @property
    def uid(self) -> str:
        """The object's uid."""


class Executor:
    """Executes the children of a plan, with at most `parallel` requests in flight."""

    def __init__(
        self,
        gateway: ApiGateway,
        cache: ClusterCache,
        recorder: EventRecorder,
        metrics: Metrics,
        parallel: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._cache = cache
        self._recorder = recorder
        self._metrics = metrics
        self._parallel = parallel
        self._clock = clock
        self.field_conflicts = FieldConflicts(clock)
        self._evicted: dict[str, float] = {}
        """Monotonic time in seconds of the last attempt to evict each pod, by pod uid."""
        self._verbs: Mapping[type[Child], Callable[[Owner, Any], Awaitable[None]]] = {
            Apply: self._apply,
            Check: self._check,
            Delete: self._delete,
            Patch: self._patch,
            PatchStatus: self._patch_status,
            EndPod: self._end,
            EvictPod: self._evict,
        }

    async def execute(self, owner: Owner, children: Sequence[Child]) -> Mapping[str, Refusal]:
        """Execute the children in order. Return the refusals of the API server by child name.

        Adjacent children of the same type run in parallel. After a refusal, the children of the next type
        are not started.

        Raises errors.ApiError for a fault that a retry may cure, after all children of the same type were
        tried.
        """
        for kind, group in itertools.groupby(children, type):
            refused: dict[str, Refusal] = {}
            if kind is Create:
                creations = [child for child in group if isinstance(child, Create)]
                refused = await self._create_all(owner, creations)
            else:
                await self._run_parallel(self._child(owner, child, refused) for child in group)
            if refused:
                return refused
        return {}

    async def _child(self, owner: Owner, child: Child, refused: dict[str, Refusal]) -> None:
        """Execute one child. If the child applies or checks an object and the API server refuses it, record
        the refusal in `refused`. Raise any other error.
        """
        try:
            await self._verbs[type(child)](owner, child)
        except (errors.Invalid, errors.Forbidden, errors.WebhookFailed) as fault:
            if not isinstance(child, Apply | Check) or (isinstance(child, Apply) and child.subresource):
                raise
            refused[child.name] = Refusal(fault.message)

    async def prune(self, owner: Owner, resources: Iterable[Resource], children: Sequence[Child]) -> None:
        """Delete the owner's objects of these resources, except those that an Apply in `children` names, and
        those that are being deleted."""
        wanted = {(child.resource, child.name) for child in children if isinstance(child, Apply)}
        left = [
            Delete(resource, one.name, one.uid)
            for resource in resources
            for one in self._cache.children(resource, owner.uid)
            if (resource, one.name) not in wanted and not one.raw["metadata"].get("deletionTimestamp")
        ]
        await self._run_parallel(self._delete(owner, one) for one in left)

    async def _create_all(self, owner: Owner, children: Sequence[Create]) -> dict[str, Refusal]:
        """Create pods in parallel. Stop at the first refusal.

        The other pods would be refused too: they come from the same template and count against the same
        quota. And a gang without one of its pods cannot run.
        """
        refused: dict[str, Refusal] = {}
        waiting = list(reversed(children))

        async def work() -> None:
            while waiting and not refused:
                child = waiting.pop()
                try:
                    await self._create(owner, child)
                except (errors.Invalid, errors.Forbidden, errors.WebhookFailed) as fault:
                    refused[child.name] = Refusal(fault.message)

        await _run_all([work() for _ in range(min(self._parallel, len(children)))])
        return refused

    async def _create(self, owner: Owner, child: Create) -> None:
        raw: Mapping[str, Any]
        namespace = _namespace(owner, child.resource)
        try:
            raw = await self._gateway.create(child.resource, namespace, child.manifest)
            lacks = mutated.missing_parts(child.manifest, raw)
        except errors.AlreadyExists:
            if not views.controller_uid(child.manifest):
                # The manifest has no controlling owner to compare, so accept the existing object. The watch
                # will report it.
                return
            raw = await self._existing(owner, child)
            lacks = mutated.missing_labels(child.manifest, raw)
        if lacks:
            await self._delete(owner, Delete(child.resource, child.name, raw["metadata"]["uid"]))
            raise errors.Invalid(422, STRIPPED.format(what=lacks))
        self._upsert(child.resource, raw)

    async def _existing(self, owner: Owner, child: Create) -> Mapping[str, Any]:
        """Return the existing object that already has the child's name. It comes from an earlier plan, or
        from a create whose response was lost.

        Raises errors.Invalid if the object belongs to another owner.
        """
        raw = await self._gateway.get(child.resource, _namespace(owner, child.resource), child.name)
        if views.controller_uid(raw) != views.controller_uid(child.manifest):
            other = APPLIED_NAME_IN_USE.format(kind=child.resource.kind, name=child.name)
            raise errors.Invalid(409, NAME_IN_USE if child.resource is PODS else other)
        if _intent(raw) != _intent(child.manifest):
            # The object differs from the one that the plan creates. Keep it: the next plan sees it and
            # decides what to do with it.
            log.info(
                "an object of an earlier plan has the name, the next plan handles it",
                kind=child.resource.kind,
                name=child.name,
            )
        return raw

    async def _check(self, owner: Owner, child: Check) -> None:
        """Let the API server check the child's object. It checks last whether the name is in use."""
        with contextlib.suppress(errors.AlreadyExists):
            await self._gateway.dry_run(child.resource, _namespace(owner, child.resource), child.manifest)

    async def _apply(self, owner: Owner, child: Apply) -> None:
        """Apply the child's fields. Raises errors.Invalid if an object of the same name has another owner."""
        resource, namespace = child.resource, _namespace(owner, child.resource)
        if child.subresource:
            fields = {name: value for name, value in child.manifest.items() if name != "metadata"}
            raw = await self._gateway.apply(
                resource, namespace, child.name, fields, subresource=child.subresource
            )
            self._upsert(resource, raw, own=True)
            return
        body = _marked(child.manifest)
        known = self._cache.child(resource, namespace or "", child.name)
        if known is None:
            try:
                known = views.cached_object(await self._gateway.get(resource, namespace, child.name))
            except errors.NotFound:
                # Use apply instead of POST: fields that were set by a POST would never be removed by a later
                # apply. Do not use `force`: if another client creates the object first, that client owns the
                # fields that both set, and this apply must fail with a Conflict.
                raw = await self._gateway.apply(resource, namespace, child.name, body, force=False)
                self._applied(owner, resource, raw)
                return
        if views.controller_uid(known.raw) != views.controller_uid(body):
            raise errors.Invalid(409, APPLIED_NAME_IN_USE.format(kind=resource.kind, name=child.name))
        wanted = _intent(known.raw) == _intent(body) and _labelled(known)
        if not wanted or self.field_conflicts.due(owner.uid, known):
            self._applied(owner, resource, await self._gateway.apply(resource, namespace, child.name, body))

    def _applied(self, owner: Owner, resource: Resource, raw: Mapping[str, Any]) -> None:
        self.field_conflicts.record(owner.uid, views.cached_object(raw))
        self._upsert(resource, raw, own=True)

    async def _patch(self, owner: Owner, child: Patch) -> None:
        raw = await self._gateway.patch(
            child.resource, _namespace(owner, child.resource), child.name, child.body
        )
        self._upsert(child.resource, raw, own=True)
        log.info("object patched", kind=child.resource.kind, name=child.name)

    async def _patch_status(self, owner: Owner, child: PatchStatus) -> None:
        """Store a status. Raises errors.Conflict if the object has changed meanwhile. Any other error is only
        logged, because the next plan tries again.
        """
        try:
            await self._store_status(owner, child)
        except errors.Conflict:
            raise
        except errors.ApiError as fault:
            log.warning(
                "storing a status failed, the next plan tries again",
                kind=child.resource.kind,
                name=child.name,
                error=str(fault),
            )

    async def _store_status(self, owner: Owner, child: PatchStatus) -> None:
        resource, namespace = child.resource, _namespace(owner, child.resource)
        parent = self._cache.child(resource, namespace or "", child.name)
        if parent is None:
            raw = await ensure(self._gateway, resource, child.name)
            parent = views.cached_object(raw)
            self._upsert(resource, raw, own=True)
            log.info("object created", kind=resource.kind, name=child.name)
        if parent.status and not child.version:
            raise errors.Conflict(
                409, f"{resource.kind} {child.name} got a status from another client meanwhile"
            )
        if patch := merge_patch(parent.status, child.status):
            version = child.version or str(parent.version)
            raw = await self._gateway.patch_status(resource, namespace, child.name, version, patch)
            self._upsert(resource, raw, own=True)
        for event in child.events:
            log.info("status stored", kind=resource.kind, name=child.name, reason=event.reason.name)
            self._recorder.record(resource, dict(parent.raw), event)

    async def _end(self, owner: Owner, pod: EndPod) -> None:
        # End the pod by a deadline, which the API lets a client add to a running pod. The kubelet counts the
        # deadline from the pod's start, so a deadline of 1 s has already passed.
        patch = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": 1}}
        try:
            raw = await self._gateway.patch(PODS, owner.namespace, pod.name, patch)
        except (errors.Invalid, errors.Forbidden) as fault:
            log.warning(
                "setting activeDeadlineSeconds failed, the pod is deleted instead",
                pod=pod.name,
                error=fault.message,
            )
            await self._delete(owner, Delete(PODS, pod.name, pod.uid))
        except (errors.NotFound, errors.Conflict):
            self._cache.drop(PODS, pod.uid)
        else:
            self._upsert(PODS, raw)

    async def _delete(self, owner: Owner, child: Delete) -> None:
        """Delete the object with this uid. An object that does not exist or that was replaced counts as
        deleted.
        """
        self.field_conflicts.drop(owner.uid, child.uid)
        try:
            raw = await self._gateway.delete(
                child.resource,
                _namespace(owner, child.resource),
                child.name,
                uid=child.uid,
                grace_seconds=child.grace_seconds,
            )
        except (errors.NotFound, errors.Conflict):
            self._cache.drop(child.resource, child.uid)
            return
        if raw.get("kind") != child.resource.kind:
            return
        if _removed_at_once(raw["metadata"]):
            # The API server has removed the object. Drop it from the cache now: the watch reports the
            # deletion later, and a new object may use the name before that.
            self._cache.drop(child.resource, child.uid)
        else:
            self._upsert(child.resource, raw)

    async def _evict(self, owner: Owner, pod: EvictPod) -> None:
        """Evict a pod, unless this was tried less than EVICT_SECONDS ago. A refused eviction is only
        logged, because a later plan tries again.
        """
        now = self._clock()
        self._evicted = {uid: at for uid, at in self._evicted.items() if now - at < EVICT_SECONDS}
        if pod.uid in self._evicted:
            return
        self._evicted[pod.uid] = now
        try:
            await self._gateway.evict(pod.namespace, pod.name, uid=pod.uid)
        except errors.ApiError as fault:
            log.warning(
                "eviction refused, a later plan tries again",
                pod=f"{pod.namespace}/{pod.name}",
                error=str(fault),
            )
            return
        self._metrics.guard_swaps.inc()
        log.info("pod evicted", pod=f"{pod.namespace}/{pod.name}")

    def _upsert(self, resource: Resource, raw: Mapping[str, Any], *, own: bool = False) -> None:
        self._cache.upsert(resource, raw, own=own)

    async def _run_parallel(self, work: Iterable[Awaitable[None]]) -> None:
        slots = asyncio.Semaphore(self._parallel)

        async def one(attempt: Awaitable[None]) -> None:
            async with slots:
                await attempt

        await _run_all([one(attempt) for attempt in work])


def _removed_at_once(deleted: Mapping[str, Any]) -> bool:
    """Return True if the response to a DELETE shows that the API server has already removed the object.
    That is the case if the object has neither a grace period nor finalizers.
    """
    return deleted.get("deletionGracePeriodSeconds") == 0 and not deleted.get("finalizers")


def _namespace(owner: Owner, resource: Resource) -> str | None:
    """Return the namespace of a child: the owner's, or None for a cluster-scoped resource."""
    return (owner.namespace or None) if resource.namespaced else None


def _labelled(known: CachedObject) -> bool:
    labels = known.raw["metadata"].get("labels") or {}
    return bool(labels.get(LABEL_MANAGED) == OPERATOR)


def _intent(body: Mapping[str, Any]) -> str | None:
    found: str | None = (body["metadata"].get("annotations") or {}).get(ANNOTATION_INTENT)
    return found


def _marked(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest with the operator's label and with an annotation that holds a digest of the
    manifest.
    """
    metadata = manifest["metadata"]
    digest = hashlib.sha256(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    labels = {**metadata.get("labels", {}), LABEL_MANAGED: OPERATOR}
    annotations = {**metadata.get("annotations", {}), ANNOTATION_INTENT: digest}
    return {**manifest, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


async def _run_all(work: Sequence[Awaitable[None]]) -> None:
    """Wait until all of `work` has ended, then raise the first error. So no started request is still
    running when the error is raised.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
