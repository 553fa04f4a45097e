"""Results of trying out a CheckpointStore."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class StoreReasons:
    """Results of trying out a CheckpointStore."""

    PROBED = Reason("Probed", "checkpoints can be committed there: {what}")
    NOT_PROBED = Reason("NotProbed", "nobody has tried it out yet: {why}")
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
        "the agent of node {node} could not use it: {why}; it is tried again",
        warning=True,
    )
    CLAIM_NOT_MOUNTED = Reason(
        "ClaimNotMounted",
        "spec.volume.claimName: PersistentVolumeClaim {name!r} is not mounted into the agent of node {node}; "
        "add it to agent.storeVolumes of the chart, then see that the agents come up: "
        "kubectl -n {namespace} rollout status daemonset/convoy-agent",
        warning=True,
    )
    NO_CONDITIONAL_WRITES = Reason(
        "NoConditionalWrites",
        "it ignores conditional writes (If-None-Match), so two incarnations could commit over one another: "
        "jobs commit nothing there. Amazon S3, Cloudflare R2 and recent releases of MinIO, Ceph and "
        "versitygw have them: upgrade, or use another store",
        warning=True,
    )
    NO_HARD_LINKS = Reason(
        "NoHardLinks",
        "spec.volume.claimName: the file system of PersistentVolumeClaim {name!r} makes no hard links, or "
        "several of one name, so two incarnations could commit over one another: jobs commit nothing there. "
        "NFS, CephFS and Lustre have them, buckets mounted as folders and many SMB shares have not: use "
        "another volume",
        warning=True,
    )
