"""Tests of `convoy checkpoint rm`: the objects that it deletes, and the jobs that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.cli.saved_job import Bucket, chunk_of, job, noise

from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.part import Part
from convoy_agents.tiercheck.stores.store import Store
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_trace import Trace, TraceSteps

GONE = ("--store", "s3", "--uid", "uid-1")


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(f"http://127.0.0.1:{server}", monkeypatch)


def failing(remove: Callable[..., None]) -> Callable[..., None]:
    """Return a function like `remove` that deletes records, but raises an error for all other objects."""

    def some(part: Part, folder: str, names: Iterable[str]) -> None:
        if folder != "records":
            raise StoreError("the store stumbles", retriable=True)
        remove(part, folder, names)

    return some


def filled(bucket: Bucket) -> set[str]:
    """Save generations of the job and of another job. Return the keys of the other job's objects."""
    Store(bucket.blobs, "team", "uid-2").put_chunk(chunk_of(noise(7)), noise(7))
    others = bucket.keys()
    bucket.save((1, 10), {"0": [noise(1), noise(2)]})
    bucket.save((1, 20), {"0": [noise(1), noise(3)]}, parent=(1, 10))
    bucket.store.put_branch(Branch(2, Generation(1, 10)))
    return others


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Suspended"])
@pytest.mark.parametrize("options", [(), GONE])
def test_checkpoints_of_an_unfinished_job_are_not_deleted(
    bucket: Bucket, phase: str, options: tuple[str, ...]
) -> None:
    filled(bucket)
    before = bucket.keys()
    bucket.cluster.about = job(phase=phase) if phase else job()
    found = bucket.run("rm", "job", "--yes", *options)
    assert found.exit_code == 1 and "job has not ended" in found.output
    assert bucket.keys() == before


def traced(made: TrainingJob, store: str | None) -> TrainingJob:
    """Return the job with an order for traces, which go to a store."""
    spec = made.spec.model_copy(update={"trace": Trace(steps=TraceSteps(), store=store)})
    return made.model_copy(update={"spec": spec})


@pytest.mark.parametrize(
    ("tiers", "traces", "hint"),
    [
        (None, None, "--store s3 --uid uid-1"),
        (None, "results", "--store s3 --uid uid-1 and with --store results --uid uid-1"),
        ({}, "results", "--store results --uid uid-1"),
    ],
)
def test_refusal_names_all_stores_of_the_job(
    bucket: Bucket, tiers: dict[str, object] | None, traces: str | None, hint: str
) -> None:
    bucket.cluster.about = traced(job(tiers, phase="Running"), traces)
    found = bucket.run("rm", "job", "--yes")
    assert found.exit_code == 1
    assert " ".join(found.output.split()).endswith(f"delete the job, then repeat the command with {hint}")


def test_refusal_for_a_job_without_a_store_names_none(bucket: Bucket) -> None:
    bucket.cluster.about = job({}, phase="Running")
    found = bucket.run("rm", "job", "--yes")
    assert found.exit_code == 1 and "delete the job" in found.output and "--store" not in found.output


def test_traces_in_another_store_are_named(bucket: Bucket) -> None:
    others = filled(bucket)
    hint = "may be in CheckpointStore results: repeat the command with --store results --uid uid-1"
    bucket.cluster.about = traced(job(phase="Succeeded"), "results")
    done = bucket.run("rm", "job", "--yes")
    assert done.exit_code == 0 and bucket.keys() == others
    assert hint in " ".join(done.output.split())
    bucket.cluster.about = traced(job({}, phase="Succeeded"), "results")
    refused = bucket.run("rm", "job", "--yes")
    assert refused.exit_code == 1 and hint in " ".join(refused.output.split())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_only_the_objects_of_the_ended_job_are_deleted(bucket: Bucket, phase: str) -> None:
    others = filled(bucket)
    bucket.cluster.about = job(phase=phase)
    refused = bucket.run("rm", "job")
    assert refused.exit_code == 1 and "add --yes to delete 2 generations" in refused.output
    assert bucket.keys() > others
    done = bucket.run("rm", "job", "--yes")
    assert done.exit_code == 0, done.output
    assert "objects deleted" in done.output and bucket.keys() == others
    assert "has nothing in the store" in bucket.run("rm", "job", "--yes").output


def test_a_deleted_job_is_selected_by_its_uid(bucket: Bucket) -> None:
    others = filled(bucket)
    bucket.cluster.about = None
    assert bucket.run("rm", "job", "--yes", *GONE).exit_code == 0
    assert bucket.keys() == others


def test_without_the_right_to_list_jobs_nothing_is_deleted(bucket: Bucket) -> None:
    filled(bucket)
    before = bucket.keys()
    bucket.cluster.may_list_jobs = False
    found = bucket.run("rm", "job", "--yes", *GONE)
    assert found.exit_code == 1 and "may not list" in found.output
    assert bucket.keys() == before


def test_after_a_store_error_a_second_run_deletes_the_rest(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = filled(bucket)
    bucket.cluster.about = None
    with monkeypatch.context() as broken:
        broken.setattr(Part, "remove", failing(Part.remove))
        found = bucket.run("rm", "job", "--yes", *GONE)
        assert found.exit_code == 1 and "the store stumbles" in found.output
    assert not bucket.store.inventory().records, "records are deleted first"
    assert bucket.run("rm", "job", "--yes", *GONE).exit_code == 0
    assert bucket.keys() == others


@pytest.mark.parametrize("left", ["branches/2", f"deletions/{'0' * 16}", f"chunks/{'0' * 32}"])
def test_any_remaining_object_of_a_job_is_deleted(bucket: Bucket, left: str) -> None:
    bucket.blobs.put(f"team/uid-1/{left}", b"left")
    bucket.cluster.about = None
    refused = bucket.run("rm", "job", *GONE)
    assert refused.exit_code == 1 and "add --yes to delete 0 generations (4)" in refused.output
    done = bucket.run("rm", "job", "--yes", *GONE)
    assert done.exit_code == 0 and "1 objects deleted" in done.output and not bucket.keys()
