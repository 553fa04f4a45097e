"""Lets the API server check manifests in dry runs. It checks each object, and the pods that each job would
create.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from convoy.cli.manifest import Manifest
from convoy.client import AlreadyExists, ApiError, Client, Forbidden, Invalid, NotFound
from convoy.client.collection import Writable
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.workers.refusal import findings
from convoy_crds.engine import KIND as ENGINE
from convoy_crds.engine import Engine
from convoy_crds.layout import first_slots
from convoy_crds.terms import LABEL_ROLE
from convoy_crds.trainingjob import TrainingJob


def named_engines(client: Client, manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the Engines of the cluster that the jobs name and that `manifests` does not contain. Engines
    that the user may not read are left out.
    """
    found: dict[str, Manifest] = {}
    here = list(manifests)
    given = {one.engine.metadata.name for one in here if one.engine}
    named = {one.job.spec.engine.name for one in here if one.job and one.job.spec.engine}
    for name in sorted(named - given):
        try:
            engine = client.engines.get(name)
        except (NotFound, Forbidden):
            # Skip the Engine. It may still be one of the Engines that come with Convoy (see
            # `Manifest.engine_of`).
            continue
        found[name] = Manifest(f"Engine {name} of the cluster", engine.to_dict(), ENGINE, engine)
    return list(found.values())


def refusals(client: Client, manifest: Manifest, manifests: Iterable[Manifest]) -> list[str]:
    """Return the API server's errors for an object that passed the local checks. Each error has its field
    path.
    """
    problems = list(_object_refusals(client, manifest))
    if manifest.job is not None and not problems:
        problems += _pod_refusals(client, manifest.job, manifest.engine_of(manifests))
    return [f"{manifest.where}: {problem}" for problem in problems]


def _object_refusals(client: Client, manifest: Manifest) -> Iterator[str]:
    """Yield the API server's errors for the object. The API server checks an update if the object exists,
    and a creation otherwise.
    """
    if manifest.kind is None:
        return
    collection = Writable(client.api, manifest.kind)
    try:
        collection.dry_run(manifest.body)
    except Invalid as error:
        yield from map(str, error.fields or (error,))
    except ApiError as error:
        yield f"the API server could not check the object: {error}"


def _pod_refusals(client: Client, job: TrainingJob, engine: Engine | None) -> Iterator[str]:
    """Yield the errors that the API server finds in the pods of the job. It checks the first pod of each
    role.
    """
    first = first_slots(job)
    for role in job.spec.roles:
        body = pod(job, engine, first[role.name])
        # The job does not exist yet, so it has no uid. An owner reference would also need rights that users
        # may lack.
        del body["metadata"]["ownerReferences"]
        yield from _role_refusals(client, job, body)


def _role_refusals(client: Client, job: TrainingJob, body: Mapping[str, Any]) -> Iterator[str]:
    role = body["metadata"]["labels"][LABEL_ROLE]
    try:
        client.api.dry_run_pod(client.namespace, body)
    except AlreadyExists:
        return
    except ApiError as error:
        causes = [(one.path, one.message) for one in error.fields] if isinstance(error, Invalid) else []
        if found := findings(job.spec.roles, body, role, str(error), causes):
            yield from map(str, found)
        else:
            yield f"the API server would refuse pods of role {role}: {error}"
