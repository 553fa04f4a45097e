"""Reasons about probes of a CheckpointStore."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class StoreReasons:
    """Reasons about probes of a CheckpointStore."""

    PROBED = Reason("Probed", "jobs can commit checkpoints to the store: {what}")
    NOT_PROBED = Reason("NotProbed", "no agent has probed the store yet: {why}")
    SECRET_NOT_FOUND = Reason(
        "SecretNotFound",
        "spec.s3.credentialsSecret: Secret {name!r} in namespace {namespace!r} cannot be read: {why}",
        warning=True,
    )
    SECRET_INCOMPLETE = Reason(
        "SecretIncomplete",
        "spec.s3.credentialsSecret: Secret {name!r} in namespace {namespace!r} has no {missing}; add it",
        warning=True,
    )
    STORE_UNREACHABLE = Reason(
        "StoreUnreachable",
        "the agent of node {node} could not use the store: {why}; the agent tries again",
        warning=True,
    )
    CLAIM_NOT_MOUNTED = Reason(
        "ClaimNotMounted",
        "spec.volume.claimName: PersistentVolumeClaim {name!r} is not mounted into the agent of node "
        "{node}; add it to agent.storeVolumes of the chart, then check that the agents start: kubectl -n "
        "{namespace} rollout status daemonset/convoy-agent",
        warning=True,
    )
    NO_CONDITIONAL_WRITES = Reason(
        "NoConditionalWrites",
        "the store ignores conditional writes (If-None-Match), so two incarnations could overwrite each "
        "other's commits. For this reason, jobs commit nothing to the store. Amazon S3, Cloudflare R2 and "
        "recent releases of MinIO, Ceph and versitygw support conditional writes: upgrade the store, or "
        "use another one",
        warning=True,
    )
    NO_HARD_LINKS = Reason(
        "NoHardLinks",
        "spec.volume.claimName: the file system of PersistentVolumeClaim {name!r} does not support hard "
        "links, or allows two links with the same name. Two incarnations could then overwrite each other's "
        "commits, so jobs commit nothing to the volume. NFS, CephFS and Lustre support hard links; buckets "
        "mounted as folders and many SMB shares do not: use another volume",
        warning=True,
    )
