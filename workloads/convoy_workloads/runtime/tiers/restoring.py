"""The restore at the start of an incarnation. The agents choose a generation and fetch its shards to this
node, and the ranks read them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from convoy_workloads.runtime.errors import PeerLost, StoreAway
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers.memory_client import AgentUnavailable, MappedFile, MemoryClient
from convoy_workloads.runtime.tiers.rank_collectives import gather

RESTORE_SECONDS = 240.0
"""Time limit, in seconds, of each request to the agent: for the choice of a generation, and for the fetch
of one shard.
"""
ATTEMPTS = 8
"""Maximum number of attempts to restore. An attempt fails if a shard is damaged."""


_NOTHING: Message = {"generation": None, "shards": [], "message": "", "lost": False}
"""A decision of the agents that the job starts at step 0."""


class Declined(Exception):
    """Raised if the node has no memory for the restore, and the job does not ask for checkpoints."""


class RestoreSession:
    """The restore of one rank. There is one restore per incarnation, before the first save."""

    def __init__(
        self, client: MemoryClient, rank: int, group: Any = None, *, by_default: bool = False
    ) -> None:
        """Prepare the restore without contacting the agent. `group`: gloo group of all ranks; None if the
        rank is alone. `by_default`: True if the job does not ask for checkpoints.
        """
        self.declined = ""
        """Reason why a node had no memory for the restore, so that all ranks start at step 0; else empty.
        Only jobs that do not ask for checkpoints start without their restore.
        """
        self._by_default = by_default
        self._client = client
        self._rank = rank
        self._group = group
        self._shards: list[tuple[Any, MappedFile]] = []
        self._segment_files: list[tuple[MappedFile, int]] = []
        """Files of the journal segments that follow the full save, each with the number of used bytes."""
        self._segments: list[Any] = []
        self._attempt = 0
        self._broken: list[list[str]] = []
        """Damaged copies of shards, each as the name of its node and the id of its shard."""
        self._full_saves_only = False
        """True if the agents may choose only full saves, because a chosen journal could not be replayed."""

    @property
    def shards(self) -> list[Any]:
        """The shards of the chosen full save; empty after `done`."""
        return [one for one, _ in self._shards]

    @property
    def journalled(self) -> bool:
        """True if the chosen generation ends in a journal. In that case call `replay` and `overlay` after
        `load`.
        """
        return bool(self._segments)

    def choose(
        self, model: Any = None, optimizer: Any = None, prepare: Callable[[], None] | None = None
    ) -> Record | None:
        """Choose the generation that all ranks resume from, and fetch every shard of it. Return None if the
        job starts at step 0.

        `model` and `optimizer`: the objects that would replay a journal. `prepare`: see `Checkpointer`.

        Raises PeerLost if the agents do not agree in time or a later incarnation has started. Raises
        StoreAway if the agents wait for the store.
        """
        while self._attempt < ATTEMPTS:
            asked = {
                "attempt": self._attempt,
                "broken": self._broken,
                "bases": self._full_saves_only,
                "whole": True,
            }
            self._attempt += 1
            declined = ""
            try:
                answer = self._request({"type": "restore", **asked})
                troubles = self._fetch_beside(answer, prepare)
            except Declined as error:
                answer, troubles, declined = _NOTHING, [], str(error)
            if answer["message"] and self._rank == 0:
                log_line(f"RESTORE: {answer['message']}")
            # Also count the shards. If a shard is missing on every node, the agent reports no damaged copy of
            # it. In that case too, try the restore again.
            whole = not troubles and len(self._shards) == len(answer["shards"])
            refusal = self._refusal(model, optimizer) if whole else ""
            notices = gather((answer["generation"], whole, troubles, refusal, declined), self._group)
            self.declined = next((one for *_, one in notices if one), "")
            if self.declined:
                self._decline(own=bool(declined))
                return None
            if any(generation != answer["generation"] for generation, *_ in notices):
                raise PeerLost("the agents offered different generations to different ranks")
            self._broken += [one for _, _, found, *_ in notices for one in found if one not in self._broken]
            refusals = [one for _, _, _, one, _ in notices if one]
            if refusals and self._rank == 0:
                log_line(f"JOURNAL NOT REPLAYED: {refusals[0]}; restoring the last full checkpoint instead")
            self._full_saves_only = self._full_saves_only or bool(refusals)
            if refusals or not all(whole for _, whole, *_ in notices):
                self._drop()
                continue
            if answer["generation"] is None:
                if answer["lost"] and self._rank == 0:
                    log_line("NO COMPLETE CHECKPOINT IS LEFT: the job starts at step 0")
                self._request({"type": "restored"})
                return None
            pair = answer["generation"]
            return Record(Generation(int(pair[0]), int(pair[1])), answer["world"], answer["torch"])
        raise PeerLost(f"{ATTEMPTS} checkpoints could not be read")

    def load(self, state: dict[str, Any]) -> None:
        """Read the full save of the chosen generation into `state`."""
        from convoy_workloads.runtime.tiers import reading  # noqa: PLC0415

        reading.load(state, self.shards)
        if not self.journalled:
            self.done()

    def replay(self, model: Any, optimizer: Any) -> bool:
        """Replay the journal on the program's objects, into which the full save has already been loaded. All
        ranks call this.

        Return True if the result matches the fingerprints in the journal on all ranks. If this returns False,
        call `discard_journal`.
        """
        from convoy_workloads.runtime.journal.fingerprints import ReplayCheck  # noqa: PLC0415
        from convoy_workloads.runtime.journal.journal import parameters_of  # noqa: PLC0415
        from convoy_workloads.runtime.journal.replay import replay  # noqa: PLC0415

        parameters = parameters_of(model, optimizer)
        check = ReplayCheck(self._segments, parameters)
        steps = replay(optimizer, parameters, self._segments, each=check.check_step)
        wrong = [one for one in gather(check.wrong, self._group) if one]
        if self._rank == 0:
            if wrong:
                log_line(
                    f"JOURNAL INEXACT: its replay does not reproduce {wrong[0]}; "
                    "restoring the last full checkpoint instead"
                )
            else:
                log_line(f"replayed {steps} steps from the journal")
        return not wrong

    def discard_journal(self) -> Record:
        """Discard the journal, because its replay was inexact. Return the record of the full save, which
        must be loaded again.

        Raises PeerLost if the full save can no longer be fetched.
        """
        self._drop()
        self._full_saves_only = True
        record = self.choose()
        if record is None:
            raise PeerLost("the full checkpoint that the journal follows no longer exists")
        return record

    def overlay(self, state: dict[str, Any]) -> None:
        """Read into `state` the values that no optimizer step computes, such as generators and buffers.
        Call this after the replay.
        """
        from convoy_workloads.runtime.journal.journal import last_segments  # noqa: PLC0415
        from convoy_workloads.runtime.tiers import reading  # noqa: PLC0415

        reading.load(state, last_segments(self._segments), partial=True)
        self.done()

    def done(self) -> None:
        """Tell the agent that the restore is complete, and release the shards. Raises PeerLost if the agent
        does not respond.
        """
        self._drop()
        self._request({"type": "restored"})

    def _decline(self, own: bool) -> None:
        """Release the shards that this rank has fetched, because it or another rank could not fetch all.
        `own`: True if it is this rank.
        """
        self._drop()
        with contextlib.suppress(Declined, PeerLost):
            self._request({"type": "restored", "declined": own})

    def _refusal(self, model: Any, optimizer: Any) -> str:
        """Return why this rank cannot replay the fetched journal; empty if it can or if there is no
        journal.
        """
        if not self._segment_files:
            return ""
        from convoy_workloads.runtime.journal import journal, segment_reader  # noqa: PLC0415
        from convoy_workloads.runtime.journal.segment import SegmentError  # noqa: PLC0415

        try:
            self._segments = [
                segment_reader.read(area.bytes[:length]) for area, length in self._segment_files
            ]
        except SegmentError as error:
            return str(error)
        return journal.refusal(model, optimizer, self._segments)

    def _fetch_beside(self, answer: Message, prepare: Callable[[], None] | None) -> list[list[str]]:
        """Fetch every shard. Meanwhile call `prepare` in this thread, if there is anything to restore."""
        if prepare is None or answer["generation"] is None:
            return self._fetch(answer)
        with ThreadPoolExecutor(1, "convoy-restore") as pool:
            fetching = pool.submit(self._fetch, answer)
            prepare()
            return fetching.result()

    def _fetch(self, answer: Message) -> list[list[str]]:
        """Fetch every shard to this node and map it into this process. Return an empty list if all shards
        can be read.

        Otherwise stop at the first shard that cannot be read. Return the damaged copies of this shard, each
        as the name of its node and the id of the shard.
        """
        from convoy_workloads.runtime.tiers import shard  # noqa: PLC0415

        names = answer["shards"]
        first = self._rank % max(1, len(names))
        # Each rank starts at another shard, so that not all ranks read from one node at the same time.
        for name in [*names[first:], *names[:first]]:
            found, files = self._request_files({"type": "shard", "shard": name})
            areas = [MappedFile(fd, write=False) for fd in files]
            if found["type"] == "broken":
                return [list(one) for one in found["broken"]]
            self._shards.append((shard.read(areas[0].bytes[: found["lengths"][0]]), areas[0]))
            self._segment_files += zip(areas[1:], found["lengths"][1:])  # noqa: B905
        return []

    def _drop(self) -> None:
        areas = [*(area for _, area in self._shards), *(area for area, _ in self._segment_files)]
        self._shards, self._segment_files, self._segments = [], [], []
        for area in areas:
            area.close()

    def _request(self, question: Message) -> Message:
        return self._request_files(question)[0]

    def _request_files(self, question: Message) -> tuple[Message, list[int]]:
        try:
            answer, files = self._client.request(question, RESTORE_SECONDS)
        except AgentUnavailable as error:
            raise PeerLost(str(error)) from error
        if answer.get("store"):
            raise StoreAway(
                f"the checkpoint exists only in the store, which does not respond: {answer.get('why')}"
            )
        if self._by_default and (answer["type"] == "refused" or answer.get("memory")):
            raise Declined(f"no memory for the restore: {answer.get('why')}")
        if answer["type"] in ("failed", "refused"):
            raise PeerLost(f"the agent offers no checkpoint from its node's memory: {answer.get('why')}")
        return answer, files
