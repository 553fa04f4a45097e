"""Access to the checkpoints that a job has in a store. Commands read the CheckpointStore and its Secret
with the rights of the user who runs them.

If the store is a volume, the volume must be mounted on this machine.
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
from convoy_crds.summaries import no_checkpoints, saves
from convoy_crds.trainingjob import TrainingJob

if TYPE_CHECKING:
    from convoy_agents.tiercheck.stores.blobs import Blobs
    from convoy_agents.tiercheck.stores.store import Store

OPERATOR = "convoy-system"
_LIBRARIES = ("numpy", "structlog", "xxhash", "zstandard")
_BOTO = ("boto3", "botocore", "s3transfer", "jmespath")
_READ_ATTEMPTS = 3
"""Maximum number of attempts to read a job's objects. An attempt is repeated if the job deletes a
generation during it.
"""

StoreName = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="CheckpointStore of a deleted job. Requires --uid."),
]
Uid = Annotated[
    str | None,
    typer.Option(
        "--uid",
        metavar="UID",
        help="metadata.uid of a deleted job. `convoy checkpoint fsck STORE` lists the uids.",
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="URL to use instead of the store's own endpoint, for example the URL of a port-forward.",
    ),
]
Operator = Annotated[
    str,
    typer.Option(
        "--operator-namespace",
        metavar="NAMESPACE",
        help="Namespace of the operator, which has the Secrets and volume claims of stores.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="FOLDER", help="Folder where the volume of the store is mounted on this machine."
    ),
]
Which = Annotated[
    str | None,
    typer.Option(
        "--generation",
        metavar="I/S",
        help="Incarnation and step, such as 2/1500. Default: the newest whole generation.",
    ),
]


@dataclass(frozen=True)
class JobStore:
    """Access to the objects that one job has in a store."""

    name: str
    """Name of the job whose objects these are."""
    store: Store
    malformed: list[str] = field(default_factory=list)
    """A message for each malformed object that the store reported."""

    def read(self) -> Contents:
        """Read the contents. Repeat the read if the job deleted a generation during the read, because that
        generation would look damaged.
        """
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
    """The job whose checkpoints a command reads or deletes."""

    client: Client
    name: str
    uid: str
    store: str
    """Name of the CheckpointStore; empty for a job without a store."""
    job: TrainingJob | None = None
    """The TrainingJob; None if it was deleted."""

    @classmethod
    def find(
        cls, name: str, store: str | None, uid: str | None, namespace: str | None, context: str | None
    ) -> SavedJob:
        """Return the existing job `name`, or the deleted job that had `uid` and used `store`.

        Raises NotFound if the job does not exist, and Failure if only one of `store` and `uid` is given.
        """
        if bool(store) != bool(uid):
            raise Failure("--store and --uid go together: give both to select a deleted job")
        client = connect_cluster(namespace, context)
        if store and uid:
            return cls(client, name, uid, store)
        job = client.training_jobs.get(name)
        return cls(client, name, job.metadata.uid, job.spec.checkpoint.tiers.store or "", job)

    def open_store(self, operator: str, endpoint: str | None, folder: Path | None) -> JobStore:
        """Return access to the job's objects in its store. Raises Failure if the job has no store, or if
        the user may not read the store.
        """
        if self.job is not None and not self.store:
            raise Failure(no_store_reason(self.job))
        blobs = connect(self.client, self.store, operator, endpoint, folder)
        return job_store(blobs, self.client.namespace, self.uid, self.name)


def job_store(blobs: Blobs, namespace: str, uid: str, name: str) -> JobStore:
    """Return access to the objects that the job `name` with `uid` has in a store. Raises Failure if `uid`
    is not valid.
    """
    from convoy_agents.tiercheck.stores.store import Store  # noqa: PLC0415

    malformed: list[str] = []
    try:
        return JobStore(name, Store(blobs, namespace, uid, report=malformed.append), malformed)
    except ValueError as error:
        raise Failure(str(error)) from error


def connect(client: Client, name: str, operator: str, endpoint: str | None, folder: Path | None) -> Blobs:
    """Return the bucket or volume of the CheckpointStore `name`.

    Raises Failure if the Secret cannot be read, if the volume is not mounted, or if a library is missing.
    """
    spec = client.checkpoint_stores.get(name).spec
    if spec.volume is not None:
        if endpoint:
            raise Failure(f"--endpoint is for a bucket; CheckpointStore {name} is on a volume: use --folder")
        return _volume(name, spec.volume, operator, folder)
    if spec.s3 is None:
        raise Failure(f"CheckpointStore {name} has neither spec.s3 nor spec.volume")
    if folder is not None:
        raise Failure(f"--folder is for a volume; CheckpointStore {name} is bucket {spec.s3.bucket}")
    return _bucket(client, name, spec.s3, operator, endpoint)


def _volume(name: str, volume: checkpointstore.Volume, operator: str, folder: Path | None) -> Blobs:
    claim = f"claim {volume.claim_name} in namespace {operator}"
    if folder is None:
        raise Failure(
            f"CheckpointStore {name} is on the volume of {claim}: mount that volume here and give its "
            "folder with --folder FOLDER"
        )
    if not folder.is_dir():
        raise Failure(f"--folder {folder}: no such folder; the volume of {claim} must be mounted there")
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
            # The host name of a port-forward cannot contain the bucket, so put the bucket into the path.
            addressing="path" if s3.path_style or endpoint else "auto",
        )
        return S3(bucket, Credentials(keys[KEY_ACCESS], keys[KEY_SECRET], keys.get(KEY_SESSION, "")))
    except (ValueError, BotoCoreError) as error:
        raise Failure(f"CheckpointStore {name}: {error}") from error


def _secret(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """Return the data of a store's Secret. Raises Failure with advice if the Secret cannot be read."""
    try:
        return client.api.secret(namespace, name)
    except Forbidden as error:
        right = f"ask an administrator for the right to get Secret {name} in namespace {namespace}"
        raise Failure(f"{error}; {right}") from error
    except NotFound as error:
        raise Failure(
            f"{error}; if the operator runs in another namespace, give it with --operator-namespace"
        ) from error


def list_all_jobs(client: Client) -> list[TrainingJob] | None:
    """Return the jobs of all namespaces; None if the user may not list them."""
    try:
        return client.training_jobs.list(everywhere=True)
    except Forbidden:
        return None


@contextlib.contextmanager
def store_errors_as_failures() -> Iterator[None]:
    """Turn an error of the store into a Failure with the same message."""
    from convoy_agents.tiercheck.stores.errors import StoreError  # noqa: PLC0415

    try:
        yield
    except StoreError as error:
        raise Failure(str(error)) from error


def require_libraries(names: Sequence[str]) -> None:
    """Raise Failure with installation advice if one of these libraries cannot be imported."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise Failure(install_advice(error.name or name)) from error


def install_advice(library: str) -> str:
    """Return a message that says how to install a missing library."""
    package = library.partition(".")[0]
    if package not in _BOTO:
        return f"reading a store needs {package}, which is not installed: pip install {package}"
    return (
        f"reading a store needs {package}, which is not installed: pip install --no-deps {' '.join(_BOTO)} "
        "(--no-deps because botocore and kubernetes require different versions of python-dateutil)"
    )


def no_store_reason(job: TrainingJob) -> str:
    """Return a message that says where the checkpoints of a job without a store are."""
    name = job.metadata.name
    if saves(job):
        return (
            f"{name} has no store: its checkpoints exist only in its nodes' memory, and are lost when it ends"
        )
    return f"{name} saves no checkpoints: {no_checkpoints(job)}"


def parse_generation(text: str | None) -> Generation | None:
    """Return the generation in the value of --generation; None without the option. Raises Failure if the
    value is not of the form I/S.
    """
    if text is None:
        return None
    found = parse_label(text)
    if found is None:
        raise Failure(f"--generation {text}: must be incarnation/step, such as 2/1500")
    return found
