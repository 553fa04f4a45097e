"""Tests of real training with real agents. The tests kill ranks, or a node with its memory. The final state
must equal that of an undisturbed training, bit for bit.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host
from tests.integration.agents.memory_job import MemoryJob
from tests.integration.agents.ranks import SECONDS, Rank, ended, running, train
from tests.integration.agents.test_memory import A, B, C, folder, job

from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_controllers.checkpoint.generation import Tier

__all__ = ["folder", "job"]

PACE = 0.2
"""Seconds per step. A save must end within one step, because a segment holds the gradients of all steps
since the previous save. With three steps it would be larger than a full save, and the rank would make a
full save instead.
"""
pytestmark = pytest.mark.timeout(400)


async def test_training_is_bit_identical_after_the_loss_of_ranks_and_a_node(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, folder: Path
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    async with running() as ranks:
        ranks.extend(calm := await train(folder, 1, 120, ["", ""]))
        wanted = await ended(calm)
        assert len(wanted) == 2, "each rank has running means of its own"
        lines = await job.form(1, [(A, one), (B, two)])
        ranks.extend(first := await train(folder, 1, 120, [A, B], slow=0.25))
        await first[0].until(r"STEP 8\b")
        await lines[0].until(lambda stand: stand["marks"].get(Tier.PEER.value, [0, 0]) >= [1, 4])
        for uid in (A, B):
            report = await hub.report(uid, lambda report: any(rank.progress.copy_ms for rank in report.ranks))
            progress = report.ranks[0].progress
            assert 0 < progress.save_ms < 10_000 and not progress.restore_ms
        # The ranks restart in place: their processes end, and the memory stays.
        for rank in first:
            rank.kill()
        lines = await job.form(2, [(A, one), (B, two)])
        ranks.extend(second := await train(folder, 2, 120, [A, B], slow=0.25))
        await second[0].until(r"continues after step \d+ from gen-1-\d+, bit-exact")
        await lines[0].until(lambda stand: stand["marks"].get(Tier.PEER.value, [0, 0]) >= [2, 12])
        report = await hub.report(A, lambda report: any(rank.progress.restore_ms for rank in report.ranks))
        assert report.incarnation == 2 and report.ranks[0].progress.restore_ms < 10_000
        # Node two dies with its memory.
        for rank in second:
            rank.kill()
        await two.stop()
        members: list[tuple[str, Host]] = [(C, three), (A, one)]
        await job.form(3, members)
        ranks.extend(third := await train(folder, 3, 120, [C, A]))
        await third[0].until(r"continues after step \d+ from gen-2-\d+, bit-exact")
        assert await ended(third) == wanted


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda number: number.name)
async def test_a_rank_killed_during_a_copy_keeps_the_previous_save(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, folder: Path, number: signal.Signals
) -> None:
    one, two = [await make_host(name) for name in ("one", "two")]
    # The journal cannot replay this optimizer, so all saves are full saves.
    optimizer, before = "NAdam", 0
    async with running() as ranks:
        ranks.extend(calm := await train(folder, 1, 60, ["", ""], optimizer=optimizer))
        wanted = await ended(calm)
        for incarnation, percent in enumerate((0, 50, 99), 1):
            lines = await job.form(incarnation, [(A, one), (B, two)])
            dies = f"{10 * incarnation}:{percent}:{number.value}"
            now = await train(folder, incarnation, 60, [A, B], slow=0.05, optimizer=optimizer, dies=dies)
            ranks.extend(now)
            if incarnation > 1:
                await _goes_on(now[0], incarnation - 1, before)
            before = int((await now[1].until(r"DIES AT \d+")).split()[-1])
            assert await now[1].process.wait() == -number
            stand = await lines[0].until(lambda stand: bool(stand["marks"]))
            assert stand["marks"][Tier.LOCAL.value] < [incarnation, before]
            now[0].kill()
        await job.form(4, [(A, one), (B, two)])
        ranks.extend(last := await train(folder, 4, 60, [A, B], optimizer=optimizer))
        await _goes_on(last[0], 3, before)
        assert await ended(last) == wanted


async def _goes_on(rank: Rank, saved_by: int, before: int) -> None:
    """Check that the rank resumes from a save of incarnation `saved_by`, at a step before `before`."""
    line = await rank.until(rf"continues after step \d+ from gen-{saved_by}-\d+, bit-exact")
    step = int(line.split()[3].rstrip(","))
    assert 0 < step < before


async def test_a_journal_is_replayed_bit_for_bit(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, folder: Path
) -> None:
    one, two = [await make_host(name) for name in ("one", "two")]
    members: list[tuple[str, Host]] = [(A, one), (B, two)]
    replayed = 0
    async with running() as ranks:
        ranks.extend(calm := await train(folder, 1, 60, ["", ""]))
        wanted = await ended(calm)
        incarnation, now = 1, ranks
        while replayed < 2:
            await job.form(incarnation, members)
            ranks.extend(now := await train(folder, incarnation, 60, [A, B], slow=PACE))
            if incarnation > 1:
                await now[0].until(r"continues after step \d+ from gen-\d+-\d+, bit-exact")
                replayed += any("replayed" in line for line in now[0].lines)
            if replayed < 2:
                await now[0].until(r"STEP \d+")
                job_memory = one.agent.memory_manager.open("uid-of-job")
                # Wait until the newest copied generation consists of segments of this incarnation.
                assert await job_memory.wait_until(
                    lambda store, at=incarnation: _journalled(store, at), SECONDS
                )
                for rank in now:
                    rank.kill()
                incarnation += 1
                assert incarnation < 8, "a segment is the newest more often than not"
        assert await ended(now) == wanted


async def test_an_inexact_journal_is_skipped(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, folder: Path
) -> None:
    """The program edits a weight that the journal does not sample. The segments are committed, but a
    restore must skip them, because their replay is not exact.
    """
    one, two = [await make_host(name) for name in ("one", "two")]
    members: list[tuple[str, Host]] = [(A, one), (B, two)]
    async with running() as ranks:
        ranks.extend(calm := await train(folder, 1, 60, ["", ""]))
        wanted = await ended(calm)
        incarnation, passed = 1, False
        while not passed:
            await job.form(incarnation, members)
            ranks.extend(now := await train(folder, incarnation, 60, [A, B], slow=PACE, edits=1))
            job_memory = one.agent.memory_manager.open("uid-of-job")
            assert await job_memory.wait_until(lambda store, at=incarnation: _journalled(store, at), SECONDS)
            for rank in now:
                rank.kill()
            incarnation += 1
            await job.form(incarnation, members)
            ranks.extend(now := await train(folder, incarnation, 60, [A, B]))
            await now[0].until(r"continues after step \d+ from gen-\d+-\d+, bit-exact")
            passed = any("JOURNAL INEXACT: its replay does not reproduce" in line for line in now[0].lines)
            assert incarnation < 12, "a segment is the newest more often than not"
            if not passed:
                for rank in now:
                    rank.kill()
                incarnation += 1
        # The full saves contain the edited weight. So the final state differs from `wanted`, and only the end
        # of the training can be checked.
        assert len(await ended(now)) == len(wanted)


def _journalled(store: ShardStore, incarnation: int) -> bool | None:
    mark = store.marks.get(Tier.PEER)
    record = store.records.get(mark) if mark else None
    if record is None or record.generation.incarnation != incarnation:
        return None
    return (
        any(store.manifests[key].extends for key in record.shards.values() if key in store.manifests) or None
    )
