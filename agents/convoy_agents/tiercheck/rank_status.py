"""The status of a rank's saves, which the rank polls. Pure: no I/O."""

from __future__ import annotations

import json

from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.buffers import SEGMENTS
from convoy_agents.tiercheck.shard_store import ShardStore


def status_of(store: ShardStore, plan: Assignment, owner: str, releases: int) -> str:
    """Return the status of a rank's saves as JSON.

    `owner`: the rank. `releases`: number of times that the job's memory went to another job. After each time
    the rank must request its buffers again.
    """
    free, given_up = store.writable(owner), store.given_up
    held = store.sealed_generations([owner], plan.incarnation)
    return json.dumps(
        {
            "marks": {tier.value: list(mark) for tier, mark in sorted(store.marks.items())},
            "buffer": free[0] if free else "",
            "segments": store.writable(owner, SEGMENTS),
            "holds": sorted(
                list(generation)
                for generation, ids in held.items()
                if not given_up.intersection(ids.values())
            ),
            "uploads": sorted(
                list(generation)
                for generation, record in store.records.items()
                if record.remote and generation.incarnation == plan.incarnation
            ),
            "interval": plan.interval_seconds,
            "copies": plan.memory.copies if plan.memory else 0,
            "releases": releases,
        }
    )
