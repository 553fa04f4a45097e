"""CheckpointStore: a place for checkpoints that outlives the cluster's memory, and who may use it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Condition, Model, ObjectMeta, Rule, StatusModel, map_list, validated

ALL_NAMESPACES = "*"
KEY_ACCESS = "accessKey"
KEY_SECRET = "secretKey"  # noqa: S105 - the name of a key in a Secret
KEY_SESSION = "sessionToken"
REQUIRED_KEYS = (KEY_ACCESS, KEY_SECRET)
"""Keys that the Secret of a store must have; `sessionToken` may be there besides."""
_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FOLDER = "[_a-zA-Z0-9][-_.a-zA-Z0-9]*"
_SUBDOMAIN = f"{_NAME}([.]{_NAME})*"
_FOLDERS = f"^{_FOLDER}(/{_FOLDER})*$"
_FOLDERS_ARE = (
    "must be folders such as team/checkpoints: letters, digits, '-', '_' and '.', each beginning with a "
    "letter, digit or '_', with no '/' at either end"
)


class S3(Model):
    """A bucket of an S3 API, or the part of it below a prefix."""

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
            "bucket, endpoint and prefix are immutable: checkpoints that are there would not be found any "
            "more; make another CheckpointStore",
        ),
    )

    bucket: Annotated[str, Field(min_length=3, max_length=63)]
    """It must be there; nobody makes it."""
    endpoint: Annotated[str, Field(max_length=512)] = ""
    """URL of the S3 API, such as `https://minio.example.com:9000`; empty for Amazon S3."""
    region: Annotated[str, Field(pattern=r"^[-a-zA-Z0-9]*$", max_length=64)] = ""
    """Empty for `us-east-1`, which most stores other than Amazon S3 take for their own."""
    prefix: Annotated[str, Field(max_length=256)] = ""
    """Folder below which everything is kept."""
    path_style: bool = False
    """Names the bucket in the path of URLs instead of the host's name, as stores of one's own often need."""
    credentials_secret: Annotated[str, Field(pattern=f"^{_SUBDOMAIN}$", min_length=1, max_length=253)]
    """Secret in the operator's namespace with keys `accessKey`, `secretKey` and perhaps `sessionToken`."""


class Volume(Model):
    """A file system that all nodes share, or the part of it below a folder."""

    model_config = validated(
        Rule(f"self.path == '' || self.path.matches('{_FOLDERS}')", f"path {_FOLDERS_ARE}", ".path"),
        Rule(
            "self.claimName == oldSelf.claimName && self.path == oldSelf.path",
            "claimName and path are immutable: checkpoints that are there would not be found any more; make "
            "another CheckpointStore",
        ),
    )

    claim_name: Annotated[str, Field(pattern=f"^{_SUBDOMAIN}$", min_length=1, max_length=253)]
    """PersistentVolumeClaim in the operator's namespace that every node can mount: ReadWriteMany. The chart's
    agent.storeVolumes mounts it into the agents.
    """
    path: Annotated[str, Field(max_length=256)] = ""
    """Folder of the volume below which everything is kept; it is made."""


class CheckpointStoreSpec(Model):
    """Where the store is, and which jobs may use it."""

    model_config = validated(
        Rule(
            "has(self.s3) != has(self.volume)",
            "a CheckpointStore needs exactly one of s3 (a bucket) and volume (a PersistentVolumeClaim)",
        ),
        Rule(
            "has(self.s3) == has(oldSelf.s3)",
            "a CheckpointStore stays in s3 or on a volume: checkpoints that are there would not be found any "
            "more; make another CheckpointStore",
        ),
        Rule(
            f"self.allowedNamespaces.all(n, n == '{ALL_NAMESPACES}' || n.matches('^{_NAME}$'))",
            f"allowedNamespaces must hold names of namespaces, or '{ALL_NAMESPACES}' for all of them",
            ".allowedNamespaces",
        ),
    )

    s3: S3 | None = None
    volume: Volume | None = None
    allowed_namespaces: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=63)]],
        Field(min_length=1, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """Namespaces whose jobs may name this store, or `*`. All of them share one set of credentials."""

    def allows(self, namespace: str | None) -> bool:
        """Whether jobs of a namespace may use the store."""
        return ALL_NAMESPACES in self.allowed_namespaces or (namespace or "") in self.allowed_namespaces


class Capabilities(StatusModel):
    """What the store was found to do when it was last reached."""

    conditional_writes: bool = False
    """Of several who write the same, one does. Without it no checkpoint is committed there."""
    checksums: bool = False
    """What was damaged on its way is refused; without it that is found when it is read. No volume has it."""


class CheckpointStoreStatus(StatusModel):
    """Whether jobs can commit checkpoints there."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    capabilities: Capabilities | None = None
    """Absent until the store was reached."""
    probed_by: str = ""
    """The node whose agent tried it last."""
    probed_at: datetime | None = None


class CheckpointStore(Model):
    """A remote tier for the checkpoints of jobs; its credentials stay in the operator's namespace."""

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
