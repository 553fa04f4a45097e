"""Fixtures of the e2e tests. All tests share one real cluster with the chart installed.

Most tests belong to the slice, which CI runs. Tests marked `full` do not. `CONVOY_E2E_KEEP=1` keeps the
cluster after the run, so that the next run starts within seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from e2e.cluster import space
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.drive.experiments import Experiments
from e2e.drive.jobs import Jobs, restricted_namespace
from e2e.drive.serving_jobs import ServingJobs
from e2e.install import bring_up

NAME = "e2e"
NODES = int(os.environ.get("CONVOY_E2E_NODES", "3"))
DESELECTED = pytest.StashKey[list[pytest.Item]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[DESELECTED] = []


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        item.config.stash[DESELECTED].append(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run test_rights.py last, because it checks the API requests of all other tests."""
    items.sort(key=lambda item: item.path.name == "test_rights.py")


@pytest.fixture
def ran(request: pytest.FixtureRequest) -> frozenset[str]:
    """Return the tests of this run as `file::test`, with the file relative to the checkout's root."""
    return frozenset(item.nodeid.partition("[")[0] for item in request.session.items)


@pytest.fixture
def more_than_slice(request: pytest.FixtureRequest) -> bool:
    """Return True if this run has tests outside the slice."""
    return any(item.get_closest_marker("full") for item in request.session.items)


@pytest.fixture
def incomplete(request: pytest.FixtureRequest, creates_cluster: bool) -> str:
    """Return the reason why this run does not show all of Convoy's API requests; empty if it shows all."""
    deselected = request.config.stash[DESELECTED]
    files = {item.path for item in [*request.session.items, *deselected]}
    if set(Path(__file__).parent.glob("test_*.py")) - files or any(
        item.get_closest_marker("full") is None for item in deselected
    ):
        return "not all tests of the slice were selected"
    if not creates_cluster:
        return "the cluster existed before this run"
    return "a test has failed" if request.session.testsfailed else ""


@pytest.fixture(scope="session")
def creates_cluster() -> bool:
    """Return True if this run creates the cluster, because none exists yet."""
    return not Cluster(NAME).exists


@pytest.fixture(scope="session")
def cluster(creates_cluster: bool) -> Iterator[Cluster]:
    """Yield a cluster with this checkout's images, operator and agents."""
    # CONVOY_E2E_SKIP_BUILD keeps images that a developer has loaded in another way.
    build = not os.environ.get("CONVOY_E2E_SKIP_BUILD")

    def delete() -> None:
        if not os.environ.get("CONVOY_E2E_KEEP"):
            Cluster(NAME).down()

    try:
        made = bring_up(NAME, NODES, Progress(), build=build, audit=True)
    except (ClusterError, OSError) as error:
        end_run(error, delete)
    except BaseException:
        delete()
        raise
    try:
        yield made
    finally:
        delete()


def end_run(error: ClusterError | OSError, delete: Callable[[], None]) -> NoReturn:
    """End the run with one message, because no test can pass without the cluster. pytest would otherwise
    show the same traceback for every test.
    """
    message = f"the cluster did not start: {space.explain(error)}"
    try:
        delete()
    except (ClusterError, OSError) as another:
        message += f"\nThe incomplete cluster could not be deleted: {another}"
    pytest.exit(message, returncode=1)


@pytest.fixture(scope="session")
def namespace(cluster: Cluster) -> str:
    """Return a namespace that enforces the restricted pod security standard."""
    return restricted_namespace(cluster, "e2e-restricted")


@pytest.fixture(scope="session")
def early(cluster: Cluster) -> Iterator[Jobs]:
    """Yield the jobs of a namespace that tests share. A test may check a job that another test started."""
    made = Jobs.of(cluster, restricted_namespace(cluster, "e2e-early"), single_threaded=True)
    made.delete_all()
    yield made
    made.start_deletion()


@pytest.fixture
def jobs(cluster: Cluster, namespace: str) -> Iterator[Jobs]:
    """Yield the jobs of a namespace. After the test, start the deletion of all jobs that it left."""
    made = Jobs.of(cluster, namespace, single_threaded=True)
    yield made
    made.start_deletion()


@pytest.fixture
def serving(cluster: Cluster, namespace: str) -> Iterator[ServingJobs]:
    """Yield the ServingJobs of a namespace. After the test, start the deletion of all that it left."""
    made = ServingJobs.of(cluster, namespace)
    yield made
    made.start_deletion()


@pytest.fixture
def experiments(cluster: Cluster, namespace: str) -> Iterator[Experiments]:
    """Yield the Experiments of a namespace. After the test, start the deletion of all that it left."""
    made = Experiments.of(cluster, namespace)
    yield made
    made.start_deletion()
