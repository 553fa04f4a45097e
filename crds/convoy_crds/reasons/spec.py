"""Reasons for an invalid spec, and for a spec that differs from the running incarnation."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class SpecReasons:
    """Reasons for an invalid spec, and for a spec that differs from the running incarnation."""

    UNKNOWN_ENGINE = Reason(
        "UnknownEngine",
        "spec.engine.name: there is no Engine {name!r}{hint}",
        warning=True,
    )
    ENGINE_NOT_READY = Reason(
        "EngineNotReady", "spec.engine.name: Engine {name!r} cannot be used: {why}", warning=True
    )
    WRONG_ROLE_KIND = Reason(
        "WrongRoleKind",
        "spec.engine.name: Engine {name!r} is for {role_kind}, not for training; name a training engine",
        warning=True,
    )
    UNKNOWN_STORE = Reason(
        "UnknownStore",
        "spec.checkpoint.tiers.remote.store: there is no CheckpointStore {name!r}; create it or name one of: "
        "{known}",
        warning=True,
    )
    STORE_NOT_ALLOWED = Reason(
        "StoreNotAllowed",
        "spec.checkpoint.tiers.remote.store: CheckpointStore {name!r} does not allow jobs of namespace "
        "{namespace!r}; add the namespace to the store's spec.allowedNamespaces, or name another store",
        warning=True,
    )
    NOTHING_TO_RESUME = Reason(
        "NothingToResume",
        "spec.checkpoint.resumeFrom.job {name!r}: {why}",
        warning=True,
    )
    INVALID_PARAMS = Reason(
        "InvalidParams", "{path}: {why}; see the parameters of Engine {name!r}", warning=True
    )
    SPLIT_GROUP = Reason("SplitGroup", "{path}: {why}", warning=True)
    INVALID_SCHEMA = Reason("InvalidSchema", "spec.paramsSchema: {why}", warning=True)
    SPEC_CHANGED = Reason(
        "SpecChanged",
        "{fields} differ from the running incarnation; undo the change, or suspend and resume the job to "
        "apply it",
        warning=True,
    )
