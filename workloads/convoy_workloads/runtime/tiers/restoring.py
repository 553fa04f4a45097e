"""What an incarnation goes on from: chosen by the agents, fetched to this node, read by its ranks."""

from __future__ import annotations

from typing import Any

from convoy_workloads.runtime.errors import PeerLost, StoreAway
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers.memory_client import AgentUnavailable, MappedFile, MemoryClient
from convoy_workloads.runtime.tiers.rank_collectives import gather

RESTORE_SECONDS = 240.0
"""For the agents to agree on what to go on from, and for each shard to be fetched."""
ATTEMPTS = 8
"""Restores that may fail because a shard turns out to be broken."""


class RestoreSession:
    """Of one rank: once, before it saves."""

    def __init__(self, client: MemoryClient, rank: int, group: Any = None) -> None:
        """`group`: gloo, all ranks; None when alone."""
        self._client = client
        self._rank = rank
        self._group = group
        self._shards: list[tuple[Any, MappedFile]] = []
        self._segment_files: list[tuple[MappedFile, int]] = []
        """What is behind the full save: files of segments, and their lengths."""
        self._segments: list[Any] = []
        self._attempt = 0
        self._broken: list[list[str]] = []
        """Shards that could not be read, with the nodes that had them."""
        self._full_saves_only = False
        """Whether full saves alone are of use."""

    @property
    def shards(self) -> list[Any]:
        """Of the full save that `choose` has found, until `done`."""
        return [one for one, _ in self._shards]

    @property
    def journalled(self) -> bool:
        """Whether what is restored ends in a journal: `load` is followed by `replay` and `overlay` then."""
        return bool(self._segments)

    def choose(self, model: Any = None, optimizer: Any = None) -> Record | None:
        """What all ranks go on from; None to begin at step 0. Every shard is here then.

        `optimizer` with the model's parameters: what a journal would be replayed through.
        PeerLost when the agents do not agree in time, or a later incarnation has begun; StoreAway when they
        wait for the store.
        """
        while self._attempt < ATTEMPTS:
            asked = {"attempt": self._attempt, "broken": self._broken, "bases": self._full_saves_only}
            self._attempt += 1
            answer = self._request({"type": "restore", **asked})
            if answer["message"] and self._rank == 0:
                log_line(f"RESTORING: {answer['message']}")
            troubles = self._fetch(answer)
            # A shard may also be gone without anybody to blame, and is tried again.
            whole = not troubles and len(self._shards) == len(answer["shards"])
            refusal = self._refusal(model, optimizer) if whole else ""
            notices = gather((answer["generation"], whole, troubles, refusal), self._group)
            if any(generation != answer["generation"] for generation, *_ in notices):
                raise PeerLost("the ranks were not told of the same generation")
            self._broken += [one for *_, found, _ in notices for one in found if one not in self._broken]
            refusals = [one for *_, one in notices if one]
            if refusals and self._rank == 0:
                log_line(f"NOT REPLAYED, the last full checkpoint is taken: {refusals[0]}")
            self._full_saves_only = self._full_saves_only or bool(refusals)
            if refusals or not all(whole for _, whole, *_ in notices):
                self._drop()
                continue
            if answer["generation"] is None:
                if answer["lost"] and self._rank == 0:
                    log_line("NO CHECKPOINT IS WHOLE ANY MORE: the job begins at step 0")
                self._request({"type": "restored"})
                return None
            pair = answer["generation"]
            return Record(Generation(int(pair[0]), int(pair[1])), answer["world"], answer["torch"])
        raise PeerLost(f"{ATTEMPTS} checkpoints could not be read")

    def load(self, state: dict[str, Any]) -> None:
        """Reads the chosen generation's full save into `state`."""
        from convoy_workloads.runtime.tiers import reading  # noqa: PLC0415

        reading.load(state, self.shards)
        if not self.journalled:
            self.done()

    def replay(self, model: Any, optimizer: Any) -> bool:
        """Takes the program's objects, which hold the full save, through the steps behind it. Whether that
        made what was there when it was saved, as far as anybody has looked; if not, `pass_over` comes next.
        All ranks call it.
        """
        from convoy_workloads.runtime.journal.fingerprints import ReplayCheck  # noqa: PLC0415
        from convoy_workloads.runtime.journal.journal import parameters_of  # noqa: PLC0415
        from convoy_workloads.runtime.journal.replay import replay  # noqa: PLC0415

        parameters = parameters_of(model, optimizer)
        check = ReplayCheck(self._segments, parameters)
        steps = replay(optimizer, parameters, self._segments, each=check.at)
        wrong = [one for one in gather(check.wrong, self._group) if one]
        if self._rank == 0:
            if wrong:
                log_line(
                    f"JOURNAL INEXACT: {wrong[0]} was not what it makes; the last full checkpoint is taken"
                )
            else:
                log_line(f"replayed {steps} steps of the journal")
        return not wrong

    def pass_over(self) -> Record:
        """After a replay that made something else: the full save alone, to be loaded. PeerLost."""
        self._drop()
        self._full_saves_only = True
        record = self.choose()
        if record is None:
            raise PeerLost("the full checkpoint behind a journal is gone")
        return record

    def overlay(self, state: dict[str, Any]) -> None:
        """Reads what no step makes, such as generators and buffers, into the state after the replay."""
        from convoy_workloads.runtime.journal.journal import last_segments  # noqa: PLC0415
        from convoy_workloads.runtime.tiers import reading  # noqa: PLC0415

        reading.load(state, last_segments(self._segments), partial=True)
        self.done()

    def done(self) -> None:
        """Everything that is needed is read: gives the shards back. PeerLost."""
        self._drop()
        self._request({"type": "restored"})

    def _refusal(self, model: Any, optimizer: Any) -> str:
        """Why the journal that was fetched cannot be replayed by this rank; empty when it can."""
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

    def _fetch(self, answer: Message) -> list[list[str]]:
        """Maps every shard, up to one that is not here any more: (node, id) of where it could not be read."""
        from convoy_workloads.runtime.tiers import shard  # noqa: PLC0415

        names = answer["shards"]
        first = self._rank % max(1, len(names))
        # Each begins elsewhere, or all would ask one node at a time.
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
            raise StoreAway(f"the checkpoint is in the store alone: {answer.get('why')}")
        if answer["type"] in ("failed", "refused"):
            raise PeerLost(f"no checkpoint from the node's memory: {answer.get('why')}")
        return answer, files
