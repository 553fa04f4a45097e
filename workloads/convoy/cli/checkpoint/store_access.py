"""From a job to its part of a store: CheckpointStore and Secret are read with the user's own rights.

The volume of a store is read where it is mounted here.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convoy.cli.checkpoint.contents import Contents, parse_label
from convoy.cli.cluster import Failure
from convoy.cli.cluster import connect as connect_cluster
from convoy.client import Client, Forbidden, NotFound
from convoy_controllers.checkpoint.generation import Generation
from convoy_crds import checkpointstore
from convoy_crds.checkpointstore import KEY_ACCESS, KEY_SECRET, KEY_SESSION
from convoy_crds.storekeys import decoded, missing
from convoy_crds.trainingjob import TrainingJob

if TYPE_CHECKING:
    from convoy_agents.tiercheck.stores.blobs import Blobs
    from convoy_agents.tiercheck.stores.store import Store

OPERATOR = "convoy-system"
_LIBRARIES = ("numpy", "structlog", "xxhash", "zstandard")
_BOTO = ("boto3", "botocore", "s3transfer", "jmespath")
_READ_ATTEMPTS = 3
"""Looks at a store from which the job deletes meanwhile."""

StoreName = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="CheckpointStore of a job that is gone; with --uid."),
]
Uid = Annotated[
    str | None,
    typer.Option(
        "--uid",
        metavar="UID",
        help="metadata.uid of a job that is gone; `convoy checkpoint fsck STORE` lists them.",
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="URL", help="In place of the store's own, as for a port-forward."),
]
Operator = Annotated[
    str,
    typer.Option(
        "--operator-namespace",
        metavar="NAMESPACE",
        help="Namespace of the operator: Secrets and claims of stores are there.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="FOLDER", help="Where the volume is mounted here, of a store that is on one."
    ),
]
Which = Annotated[
    str | None,
    typer.Option(
        "--generation", metavar="I/S", help="Incarnation and step, as `ls` shows them; else the newest."
    ),
]


@dataclass(frozen=True)
class JobStore:
    """A job's part of a store."""

    name: str
    """Of the job."""
    store: Store
    malformed: list[str] = field(default_factory=list)
    """What the store reports as malformed."""

    def read(self) -> Contents:
        """Read the store. Repeat if a generation is deleted meanwhile, since it would look damaged."""
        with store_errors_as_failures():
            for _ in range(_READ_ATTEMPTS):
                self.malformed.clear()
                inventory = self.store.inventory()
                manifests, chunks = self.store.listing("manifests"), self.store.listing("chunks")
                left = self.store.listing("records").written
                if all(one.name in left for one in inventory.records):
                    break
        return Contents(inventory, chunks, manifests, tuple(self.malformed))


@dataclass(frozen=True)
class SavedJob:
    """The job whose checkpoints they are."""

    client: Client
    name: str
    uid: str
    store: str
    """CheckpointStore; empty for a job that names none."""
    job: TrainingJob | None = None
    """None for one that is gone."""

    @classmethod
    def find(
        cls, name: str, store: str | None, uid: str | None, namespace: str | None, context: str | None
    ) -> SavedJob:
        """The job of that name, or the one that was `uid` and used `store`. Failure when there is none."""
        if bool(store) != bool(uid):
            raise Failure("--store and --uid go together: they say which job it was that is gone")
        client = connect_cluster(namespace, context)
        if store and uid:
            return cls(client, name, uid, store)
        job = client.training_jobs.get(name)
        return cls(client, name, job.metadata.uid, job.spec.checkpoint.tiers.store or "", job)

    def open_store(self, operator: str, endpoint: str | None, folder: Path | None) -> JobStore:
        """Its part of the store. Failure when it has none, or the user may not read it."""
        if self.job is not None and not self.store:
            raise Failure(no_store_reason(self.job))
        blobs = connect(self.client, self.store, operator, endpoint, folder)
        return job_store(blobs, self.client.namespace, self.uid, self.name)


def job_store(blobs: Blobs, namespace: str, uid: str, name: str) -> JobStore:
    """What these blobs have of the job `name` that is or was `uid`. Failure when that can be no uid."""
    from convoy_agents.tiercheck.stores.store import Store  # noqa: PLC0415

    malformed: list[str] = []
    try:
        return JobStore(name, Store(blobs, namespace, uid, report=malformed.append), malformed)
    except ValueError as error:
        raise Failure(str(error)) from error


def connect(client: Client, name: str, operator: str, endpoint: str | None, folder: Path | None) -> Blobs:
    """The bucket or volume of a CheckpointStore. Failure when it, its Secret or a library cannot be had."""
    spec = client.checkpoint_stores.get(name).spec
    if spec.volume is not None:
        if endpoint:
            raise Failure(f"--endpoint is for a bucket; CheckpointStore {name} is on a volume: --folder")
        return _volume(name, spec.volume, operator, folder)
    if spec.s3 is None:
        raise Failure(f"CheckpointStore {name} has neither s3 nor volume")
    if folder is not None:
        raise Failure(f"--folder is for a volume; CheckpointStore {name} is bucket {spec.s3.bucket}")
    return _bucket(client, name, spec.s3, operator, endpoint)


def _volume(name: str, volume: checkpointstore.Volume, operator: str, folder: Path | None) -> Blobs:
    claim = f"claim {volume.claim_name} in namespace {operator}"
    if folder is None:
        raise Failure(
            f"CheckpointStore {name} is on the volume of {claim}: mount that volume here and say where, "
            "--folder FOLDER"
        )
    if not folder.is_dir():
        raise Failure(f"--folder {folder}: no such folder; the volume of {claim} has to be mounted there")
    require_libraries(_LIBRARIES)
    from convoy_agents.tiercheck.stores.volume import Volume  # noqa: PLC0415

    return Volume(folder, volume.path)


def _bucket(client: Client, name: str, s3: checkpointstore.S3, operator: str, endpoint: str | None) -> Blobs:
    require_libraries(("boto3", *_LIBRARIES))
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    from convoy_agents.tiercheck.stores.s3 import S3, Bucket, Credentials  # noqa: PLC0415

    keys = decoded(_secret(client, operator, s3.credentials_secret))
    if lacking := missing(keys):
        raise Failure(f"Secret {operator}/{s3.credentials_secret} has no {' and no '.join(lacking)}")
    try:
        bucket = Bucket(
            s3.bucket,
            endpoint_url=endpoint or s3.endpoint,
            region=s3.region or "us-east-1",
            prefix=s3.prefix,
            # What is forwarded to this machine has no host name for each bucket.
            addressing="path" if s3.path_style or endpoint else "auto",
        )
        return S3(bucket, Credentials(keys[KEY_ACCESS], keys[KEY_SECRET], keys.get(KEY_SESSION, "")))
    except (ValueError, BotoCoreError) as error:
        raise Failure(f"CheckpointStore {name}: {error}") from error


def _secret(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """The Secret of a store. Failure, with what to do, when it cannot be read."""
    try:
        return client.api.secret(namespace, name)
    except Forbidden as error:
        right = f"ask an administrator for the right to get Secret {name} in namespace {namespace}"
        raise Failure(f"{error}; {right}") from error
    except NotFound as error:
        raise Failure(
            f"{error}; is the operator in another namespace? --operator-namespace says in which"
        ) from error


def list_all_jobs(client: Client) -> list[TrainingJob] | None:
    """The jobs of all namespaces; None when the user may not list them."""
    try:
        return client.training_jobs.list(everywhere=True)
    except Forbidden:
        return None


@contextlib.contextmanager
def store_errors_as_failures() -> Iterator[None]:
    """Ends the command with the store's own words when it does not do what it is asked for."""
    from convoy_agents.tiercheck.stores.errors import StoreError  # noqa: PLC0415

    try:
        yield
    except StoreError as error:
        raise Failure(str(error)) from error


def require_libraries(names: Sequence[str]) -> None:
    """Failure that says what to install when one is lacking by which stores are read."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise Failure(install_advice(error.name or name)) from error


def install_advice(library: str) -> str:
    """What to do when a library is not there."""
    package = library.partition(".")[0]
    if package not in _BOTO:
        return f"{package} is not installed here, by which stores are read: pip install {package}"
    return (
        f"{package} is not installed here, by which stores are read: pip install --no-deps {' '.join(_BOTO)} "
        "(without --no-deps pip finds that botocore and kubernetes want different python-dateutils)"
    )


def no_store_reason(job: TrainingJob) -> str:
    """Where the checkpoints of a job are that names no store."""
    name = job.metadata.name
    if job.spec.checkpoint.tiers.any:
        return f"{name} names no store: what it saves is in its nodes' memory alone, and goes with the job"
    return f"{name} has no place for checkpoints (spec.checkpoint.tiers)"


def parse_generation(text: str | None) -> Generation | None:
    """The generation that an option names; None without one. Failure for any other text."""
    if text is None:
        return None
    found = parse_label(text)
    if found is None:
        raise Failure(f"--generation {text}: must be incarnation/step, such as 2/1500")
    return found
