"""Process groups: their names and ranks, and the group of each communication."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from convoy_workloads.traces.convert.works import Work
from convoy_workloads.traces.findings import Finding, Findings, Rule, first_of, short
from convoy_workloads.traces.torch_json.document import bounded, clean, items, mapping
from convoy_workloads.traces.torch_json.host import Host
from convoy_workloads.traces.torch_json.kineto import DEVICE, Kineto, groups_in
from convoy_workloads.traces.trace import MAX_RANKS


class Groups:
    """The process groups of a rank."""

    def __init__(self, kineto: Kineto, host: Host) -> None:
        listed = groups_in(kineto) or host.groups()
        self.ranks: dict[str, tuple[int, ...]] = {}
        """Ranks of each group by its name. torch lists no ranks for the group of all."""
        room = MAX_RANKS
        for one in listed:
            if isinstance(name := one.get("pg_name"), str) and room > 0:
                self.ranks[clean(name)] = ranks = _ranks(one)
                room -= 1 + len(ranks)
        self._on_host = [
            clean(str(one.get("pg_name")))
            for one in listed
            if "gloo" in str(one.get("backend_config", "gloo"))
        ]
        threads = mapping(kineto.convoy.get("threads"))
        self._threads = {lane: clean(name) for lane, name in threads.items() if isinstance(name, str)}

    def name_of(self, work: Work, found: Findings) -> str | None:
        """Return the name of the group of a communication; None if the traces do not show it.

        NCCL names the group. Works of gloo run on threads of their group, which Convoy's recorder notes.
        """
        named = work.event.text("Process Group Name") or (
            work.asked.text("Process Group Name") if work.asked else ""
        )
        if named:
            return named
        if work.event.category not in DEVICE:
            if work.event.lane in self._threads:
                return self._threads[work.event.lane]
            if len(self._on_host) == 1:
                return self._on_host[0]
        elif len(self.ranks) == 1:
            return next(iter(self.ranks))
        groups = first_of([short(one) for one in self.ranks]) or "none"
        text = f"{short(work.event.name)}: the traces do not show its process group, one of {groups}"
        found.add(Finding(Rule.UNKNOWN_GROUP, text))
        return None

    def global_rank(self, group: str | None, rank: int) -> int:
        """Return the rank in the job of a rank of a group."""
        ranks = self.ranks.get(group or "", ())
        return ranks[rank] if 0 <= rank < len(ranks) else rank

    def as_text(self) -> str | None:
        """Return the ranks of all groups as JSON; None without groups."""
        return json.dumps({name: list(ranks) for name, ranks in self.ranks.items()}) if self.ranks else None


def _ranks(group: Mapping[str, Any]) -> tuple[int, ...]:
    ranks = [one for one in items(group.get("ranks")) if bounded(one, MAX_RANKS) is not None]
    if ranks:
        return tuple(ranks)
    return tuple(range(bounded(group.get("pg_size", group.get("group_size")), MAX_RANKS) or 0))
