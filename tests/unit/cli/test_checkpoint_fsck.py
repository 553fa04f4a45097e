"""Tests of `convoy checkpoint fsck`: its findings, and the objects that it deletes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.cli.saved_job import SIZE, Bucket, chunk_of, job, noise, record_of, shard
from tests.unit.cli.test_checkpoint_contents import contents

from convoy.cli.checkpoint.findings import count, find_faults
from convoy_agents.tiercheck.stores.job_folders import JobFolder, job_folders
from convoy_agents.tiercheck.stores.store import Store
from convoy_controllers.checkpoint.retention import Garbage, Keep

GRACE = 1800.0
OLD = 3600.0
FIRST = shard((1, 10), [noise(1), noise(2)])
SECOND = shard((1, 20), [noise(1), noise(3)])
STRAY = shard((1, 15), [noise(3), noise(9)])
RUN = [record_of([FIRST]), record_of([SECOND], (1, 10))]


def digests(*seeds: object) -> frozenset[str]:
    return frozenset(chunk_of(noise(seed)).digest for seed in seeds)


# Tests of the findings, without a store.


def test_an_intact_store_has_no_findings() -> None:
    found = find_faults(contents(RUN, [FIRST, SECOND], age=OLD), Keep(2), GRACE)
    assert (found.generations, found.size, found.faults) == (2, 3 * SIZE + 200, 0)
    assert found.orphaned == found.expired == Garbage() and not count(found.garbage)


@pytest.mark.parametrize(
    ("age", "expired"),
    [(OLD, Garbage(manifests=frozenset({STRAY.id}), chunks=digests(9))), (10.0, Garbage())],
)
def test_objects_that_no_record_needs_are_orphaned_and_expire(age: float, expired: Garbage) -> None:
    found = find_faults(contents(RUN, [FIRST, SECOND, STRAY], age=age), Keep(2), GRACE)
    assert found.orphaned == Garbage(manifests=frozenset({STRAY.id}), chunks=digests(9))
    assert found.orphaned_bytes == SIZE + 100
    assert found.expired == expired and not found.faults


def test_a_young_manifest_keeps_its_old_chunks() -> None:
    about = contents(RUN, [FIRST, SECOND, STRAY], age=OLD)
    times = {**about.manifests.written, STRAY.id: about.manifests.now}
    found = find_faults(replace(about, manifests=about.manifests._replace(written=times)), Keep(2), GRACE)
    assert count(found.orphaned) == 2 and not count(found.expired)


def test_an_unreadable_record_protects_every_object() -> None:
    about = contents(RUN[:1], [FIRST, SECOND], age=OLD, malformed=("b: t/u/records/gen-1-20: damaged",))
    found = find_faults(about, Keep(2), GRACE)
    assert found.damaged == ("cannot be read: b: t/u/records/gen-1-20: damaged",)
    assert found.orphaned == found.expired == Garbage()


def test_an_unreadable_manifest_protects_every_chunk() -> None:
    about = contents(RUN, [FIRST, SECOND], age=OLD)
    known = {FIRST.id: FIRST}
    found = find_faults(replace(about, inventory=replace(about.inventory, manifests=known)), Keep(2), GRACE)
    assert found.damaged == (f"manifest {SECOND.id} cannot be read; needed by shard 0 of 1/20",)
    assert found.orphaned == found.expired == Garbage()


def test_the_next_garbage_collection_is_predicted() -> None:
    found = find_faults(contents(RUN, [FIRST, SECOND], age=OLD), Keep(1), GRACE)
    assert found.garbage == Garbage((FIRST.generation,), (), frozenset({FIRST.id}), digests(2))
    assert found.garbage_bytes == SIZE + 100 and not count(found.orphaned)


def test_missing_and_damaged_chunks_are_distinguished() -> None:
    about = contents(RUN, [FIRST, SECOND], age=OLD, without=[noise(2)])
    bad = chunk_of(noise(3)).digest
    found = find_faults(about, Keep(2), GRACE, {bad: f"chunk {bad} is damaged"})
    assert found.missing == (f"chunk {chunk_of(noise(2)).digest} is missing; needed by shard 0 of 1/10",)
    assert found.damaged == (f"chunk {bad} is damaged; needed by shard 0 of 1/20",)


# Tests of the command, with a store.


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(f"http://127.0.0.1:{server}", monkeypatch)


def filled(bucket: Bucket) -> None:
    bucket.save((1, 10), {"0": [noise(1), noise(2)]})
    bucket.save((1, 20), {"0": [noise(1), noise(3)]}, parent=(1, 10))


def test_an_empty_store_is_intact(bucket: Bucket) -> None:
    found = bucket.run("fsck", "s3", "--repair")
    assert found.exit_code == 0, found.output
    assert found.output == "s3: 0 jobs, 0 generations, 0; 0 damaged, 0 missing\nnothing to delete\n"


def test_every_job_of_a_store_is_checked(bucket: Bucket) -> None:
    filled(bucket)
    Store(bucket.blobs, "team", "uid-2").put_chunk(chunk_of(noise(7)), noise(7))
    Store(bucket.blobs, "other", "uid-3").put_chunk(chunk_of(noise(8)), noise(8))
    bucket.blobs.put(f"probe-{uuid4()}/plain", b"x")
    bucket.blobs.put("data/set/of-others/file", b"x")
    assert job_folders(bucket.blobs) == [
        JobFolder("other", "uid-3"),
        JobFolder("team", "uid-1"),
        JobFolder("team", "uid-2"),
    ]
    found = bucket.run("fsck", "s3", "--deep")
    assert found.exit_code == 0, found.output
    lines = [line.split() for line in found.output.splitlines()]
    assert [line[:4] for line in lines[1:4]] == [
        ["other", "uid-3", "(absent)", "0"],
        ["team", "uid-1", "job", "2"],
        ["team", "uid-2", "(absent)", "0"],
    ]
    assert "s3: 3 jobs, 2 generations" in found.output
    assert "orphaned: 2 objects (2.0Ki), of which --repair may delete 0 (0)" in found.output
    bucket.cluster.may_list_jobs = False
    assert bucket.run("fsck", "s3").output.splitlines()[2].split()[2] == "-"


def test_only_a_deep_check_finds_a_flipped_bit(bucket: Bucket) -> None:
    filled(bucket)
    name = chunk_of(noise(3)).digest
    bucket.spoil("chunks", name, noise("other"))
    assert bucket.run("fsck", "s3").exit_code == 0
    found = bucket.run("fsck", "s3", "--deep")
    assert found.exit_code == 1
    assert f"team/uid-1: chunk {name} is damaged; needed by shard 0 of 1/20" in found.output
    assert "1 damaged, 0 missing" in found.output


def test_malformed_and_missing_objects_are_named(bucket: Bucket) -> None:
    filled(bucket)
    bucket.spoil("records", "gen-1-20", b"[]")
    bucket.remove("chunks", chunk_of(noise(2)).digest)
    found = bucket.run("fsck", "s3")
    assert found.exit_code == 1 and "1 damaged, 1 missing" in found.output
    assert "team/uid-1: cannot be read: " in found.output and "records/gen-1-20" in found.output
    assert "orphaned" not in found.output, "the unreadable record may need what looks orphaned"


def test_repair_deletes_old_orphans_and_nothing_else(bucket: Bucket) -> None:
    filled(bucket)
    kept = bucket.keys()
    bucket.put(shard((1, 15), [noise(3), noise(9)], "0"), [noise(3), noise(9)])
    young = bucket.run("fsck", "s3", "--repair", "--yes")
    assert young.exit_code == 0 and "nothing to delete" in young.output
    assert bucket.keys() > kept
    bucket.age_all()
    refused = bucket.run("fsck", "s3", "--repair")
    assert refused.exit_code == 1 and "add --yes to delete" in refused.output and bucket.keys() > kept
    done = bucket.run("fsck", "s3", "--repair", "--yes")
    assert done.exit_code == 0, done.output
    assert "2 objects deleted" in done.output and bucket.keys() == kept
    assert bucket.run("verify", "job", "--all").exit_code == 0


def test_repair_keeps_objects_that_a_damaged_record_may_need(bucket: Bucket) -> None:
    filled(bucket)
    bucket.spoil("records", "gen-1-20", b"[]")
    bucket.age_all()
    before = bucket.keys()
    done = bucket.run("fsck", "s3", "--repair", "--yes")
    assert done.exit_code == 1 and "nothing to delete" in done.output
    assert bucket.keys() == before


def test_garbage_depends_on_the_retention_policy_of_the_job(bucket: Bucket) -> None:
    filled(bucket)
    bucket.age_all()
    assert bucket.run("fsck", "s3").output.splitlines()[1].split()[-1] != "0"
    bucket.cluster.about = job({"local": {}, "remote": {"store": "s3", "keepLast": 2}})
    assert bucket.run("fsck", "s3").output.splitlines()[1].split()[-1] == "0"


def test_without_the_right_to_list_jobs_their_uids_are_shown(bucket: Bucket) -> None:
    filled(bucket)
    bucket.cluster.may_list_jobs = False
    found = bucket.run("fsck", "s3")
    assert found.exit_code == 0, found.output
    assert found.output.splitlines()[1].split()[:4] == ["team", "uid-1", "-", "2"]
    assert "s3: 1 job, 2 generations" in found.output
