"""CheckpointStore: a bucket or shared volume that stores checkpoints outside the memory of the cluster's
nodes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.allowed_namespaces import ALLOWED_NAMESPACES_RULE, AllowedNamespaces, allows
from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Condition, Model, ObjectMeta, Rule, StatusModel, map_list, validated

KEY_ACCESS = "accessKey"
KEY_SECRET = "secretKey"  # noqa: S105 - the name of a key in a Secret
KEY_SESSION = "sessionToken"
REQUIRED_KEYS = (KEY_ACCESS, KEY_SECRET)
"""Keys that the Secret of a store must have. The key `sessionToken` is optional."""
_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FOLDER = "[_a-zA-Z0-9][-_.a-zA-Z0-9]*"
_SUBDOMAIN = f"{_NAME}([.]{_NAME})*"
_FOLDERS = f"^{_FOLDER}(/{_FOLDER})*$"
_FOLDERS_ARE = (
    "must be folders such as team/checkpoints: letters, digits, '-', '_' and '.', each beginning with a "
    "letter, digit or '_', with no '/' at either end"
)


class S3(Model):
    """A bucket with an S3 API, or a folder of such a bucket."""

    model_config = validated(
        Rule(
            "self.bucket.matches('^[a-z0-9][-.a-z0-9]*[a-z0-9]$') && !self.bucket.contains('..')",
            "bucket must be of lower-case letters, digits, '-' and single dots, with a letter or digit at "
            "both ends",
            ".bucket",
        ),
        Rule(
            "self.endpoint == '' || self.endpoint.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",
            "endpoint must be a URL that begins with http:// or https:// and has no user, query or fragment; "
            "leave it out for Amazon S3",
            ".endpoint",
        ),
        Rule(f"self.prefix == '' || self.prefix.matches('{_FOLDERS}')", f"prefix {_FOLDERS_ARE}", ".prefix"),
        Rule(
            "self.bucket == oldSelf.bucket && self.endpoint == oldSelf.endpoint"
            " && self.prefix == oldSelf.prefix",
            "bucket, endpoint and prefix are immutable: jobs would lose the checkpoints that are "
            "already stored; create another CheckpointStore",
        ),
    )

    bucket: Annotated[str, Field(min_length=3, max_length=63)]
    """Name of an existing bucket. Convoy does not create it."""
    endpoint: Annotated[str, Field(max_length=512)] = ""
    """URL of the S3 API, such as `https://minio.example.com:9000`. Empty for Amazon S3."""
    region: Annotated[str, Field(pattern=r"^[-a-zA-Z0-9]*$", max_length=64)] = ""
    """Region of the bucket. Empty for `us-east-1`, which is also the default region of most other S3
    stores.
    """
    prefix: Annotated[str, Field(max_length=256)] = ""
    """Folder inside the bucket that holds all checkpoints. Empty for the whole bucket."""
    path_style: bool = False
    """True puts the name of the bucket into the path of URLs instead of the host name. Self-hosted stores
    often need this.
    """
    credentials_secret: Annotated[str, Field(pattern=f"^{_SUBDOMAIN}$", min_length=1, max_length=253)]
    """Secret in the operator's namespace with the keys `accessKey`, `secretKey` and, optionally,
    `sessionToken`.
    """


class Volume(Model):
    """A file system that all nodes share, or a folder of it."""

    model_config = validated(
        Rule(f"self.path == '' || self.path.matches('{_FOLDERS}')", f"path {_FOLDERS_ARE}", ".path"),
        Rule(
            "self.claimName == oldSelf.claimName && self.path == oldSelf.path",
            "claimName and path are immutable: jobs would lose the checkpoints that are already stored; "
            "create another CheckpointStore",
        ),
    )

    claim_name: Annotated[str, Field(pattern=f"^{_SUBDOMAIN}$", min_length=1, max_length=253)]
    """PersistentVolumeClaim in the operator's namespace that every node can mount (ReadWriteMany). The
    chart value agent.storeVolumes mounts it into the agents.
    """
    path: Annotated[str, Field(max_length=256)] = ""
    """Folder of the volume that holds all checkpoints. Convoy creates it."""


class CheckpointStoreSpec(Model):
    """The location of the store and the namespaces that may use it."""

    model_config = validated(
        Rule(
            "has(self.s3) != has(self.volume)",
            "a CheckpointStore needs exactly one of s3 (a bucket) and volume (a PersistentVolumeClaim)",
        ),
        Rule(
            "has(self.s3) == has(oldSelf.s3)",
            "a CheckpointStore cannot change between s3 and volume: jobs would lose the checkpoints that are "
            "already stored; create another CheckpointStore",
        ),
        ALLOWED_NAMESPACES_RULE,
    )

    s3: S3 | None = None
    volume: Volume | None = None
    allowed_namespaces: AllowedNamespaces
    """Namespaces whose jobs may use this store, or `*` for all. All these jobs share one set of
    credentials.
    """

    def allows(self, namespace: str | None) -> bool:
        """Return True if jobs of the namespace may use the store."""
        return allows(self.allowed_namespaces, namespace)


class Capabilities(StatusModel):
    """Capabilities that the latest probe of the store found."""

    conditional_writes: bool = False
    """True if exactly one of several simultaneous writers of an object succeeds. If this is False, jobs
    commit no checkpoint to this store.
    """
    checksums: bool = False
    """True if the store rejects data that were damaged in transit. If this is False, the damage is detected
    when the data are read. It is always False for volumes.
    """


class CheckpointStoreStatus(StatusModel):
    """Result of the latest probe of the store."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    capabilities: Capabilities | None = None
    """Capabilities of the store. Absent until a probe has reached the store."""
    probed_by: str = ""
    """Node whose agent made the latest probe."""
    probed_at: datetime | None = None


class CheckpointStore(Model):
    """A remote place for the checkpoints of jobs. Its credentials stay in the operator's namespace."""

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["CheckpointStore"] = "CheckpointStore"
    metadata: ObjectMeta
    spec: CheckpointStoreSpec
    status: CheckpointStoreStatus = Field(default_factory=CheckpointStoreStatus)


KIND = Kind(
    CheckpointStore,
    plural="checkpointstores",
    short=("cstore",),
    scope=Scope.CLUSTER,
    columns=(
        Column("Bucket", ".spec.s3.bucket"),
        Column("Endpoint", ".spec.s3.endpoint"),
        Column("Claim", ".spec.volume.claimName"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Probed", ".status.probedAt", "date", wide=True),
        Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
    ),
    editors=Editors.CLUSTER_ADMINS,
)
