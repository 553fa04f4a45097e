"""The ground truth of a run. Every restore is checked against it."""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.restore import Restore
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.violation import InvariantViolation


class NoProgress(AssertionError):
    """Raised when no guarantee is broken but commits have stopped."""


@dataclass(slots=True)
class RunTruth:
    """Ground truth of one run.

    A node is identified by its name and its number of memory losses. With its memory it loses all
    knowledge, so it then counts as another node.
    """

    tokens: dict[Generation, str] = field(default_factory=dict)
    """Token that identifies the saved state, by generation."""
    predecessors: dict[Generation, Generation] = field(default_factory=dict)
    """Save that each journal segment extends."""
    restored_from: dict[int, Generation | None] = field(default_factory=dict)
    """Generation that each incarnation restored. Contains only incarnations that made a step."""
    informed: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """Nodes (and the store) that know which generation an incarnation restored, by incarnation."""
    latest_incarnations: dict[tuple[str, int], int] = field(default_factory=dict)
    """Latest incarnation that each node knows."""
    watermarks: dict[Tier, Generation] = field(default_factory=dict)
    """Newest generation that at least one node knows to be committed, by tier."""
    memory_losses: int = 0
    """Number of memory losses of all nodes together."""
    losses_before: dict[Generation, int] = field(default_factory=dict)
    """Number of memory losses of all nodes at the time when each generation was saved, or last copied after
    a restore.
    """
    restores: int = 0
    committed: int = 0

    def save(self, generation: Generation, token: str, predecessor: Generation | None = None) -> None:
        """Record a save. A save with a predecessor is a journal segment."""
        self.tokens[generation] = token
        if predecessor is not None:
            self.predecessors[generation] = predecessor
        self.losses_before[generation] = self.memory_losses

    def advance(self, tier: Tier, generation: Generation) -> None:
        """Record that a node knows a generation to be committed at a tier."""
        if generation > self.watermarks.get(tier, Generation(0, 0)):
            self.watermarks[tier] = generation
            self.committed += tier is Tier.LOCAL

    def record_incarnation(self, who: tuple[str, int], incarnation: int) -> None:
        """Record that a node knows an incarnation."""
        self.latest_incarnations[who] = max(incarnation, self.latest_incarnations.get(who, 0))

    def check_not_superseded(self, who: tuple[str, int], incarnation: int, what: str) -> None:
        """Raise InvariantViolation if a node works for an incarnation although it knows a later one.

        The later incarnation may already have chosen a generation to restore, so this work could be lost.
        """
        if (latest := self.latest_incarnations.get(who, 0)) > incarnation:
            raise InvariantViolation(
                f"{who[0]} {what} of incarnation {incarnation}, but already knows incarnation {latest}"
            )

    def chain(self, generation: Generation) -> list[Generation]:
        """Return a save and all saves that it extends, newest first."""
        found = [generation]
        while found[-1] in self.predecessors:
            found.append(self.predecessors[found[-1]])
        return found

    def in_current_history(self, generation: Generation | None) -> bool:
        """Return True if the history of the newest incarnation contains this generation. The generation
        None stands for a start without a checkpoint.
        """
        newest = max(self.restored_from, default=0)
        limit: Generation | None = Generation(newest, 1 << 60)
        while limit is not None:
            if generation is not None and generation.incarnation == limit.incarnation:
                return generation <= limit
            limit = self.restored_from.get(limit.incarnation)
        return generation is None

    def successors_unknown(self, chosen: Generation | None, consulted: set[tuple[str, int]]) -> bool:
        """Return True if no consulted node knows any incarnation that started after the chosen generation's
        incarnation.
        """
        after = [
            number for number in self.restored_from if chosen is not None and number > chosen.incarnation
        ]
        return chosen is not None and not any(
            self.informed.get(number, set()) & consulted for number in after
        )

    def check_restore(
        self,
        found: Restore | None,
        shape: Shape,
        all_consulted: bool,
        remote: bool,
        consulted: set[tuple[str, int]],
    ) -> None:
        """Raise InvariantViolation unless a restore chose the right generation.

        The generation must belong to this run, be complete, and be at least as new as guaranteed.

        `all_consulted` is True if all memory that still exists was read, `remote` if the store was read.
        `consulted` has the nodes (identified as in `informed`) that the restore read. It also has silent
        nodes that a correct restore waits for.
        """
        self.restores += 1
        chosen = found.record.generation if found else None
        lost = self.successors_unknown(chosen, consulted) or (chosen is None and not self.watermarks)
        if not self.in_current_history(chosen) and not lost:
            raise InvariantViolation(
                f"{chosen} was restored, but the incarnations restored {self.restored_from}"
            )
        if found is not None:
            token = self.tokens[found.record.generation]
            whole = {f"{token}/{slot}" for slot in range(len(found.shards))}
            read = {chunk.digest for links in found.shards.values() for chunk in links[-1].manifest.chunks}
            chain = self.chain(found.record.generation)[::-1]
            if any([link.manifest.generation for link in links] != chain for links in found.shards.values()):
                raise InvariantViolation(f"{chosen} was read without the saves that it extends: {chain[:-1]}")
            if read != whole or len(found.shards) != shape.slots:
                raise InvariantViolation(
                    f"{chosen} was assembled from {sorted(read)}, not from {sorted(whole)}"
                )
        guaranteed = [Generation(0, 0)]
        if (
            all_consulted
            and (watermark := self.watermarks.get(Tier.PEER))
            and self.memory_losses - self.losses_before[watermark] <= shape.copies
        ):
            guaranteed.append(watermark)
        if remote and Tier.REMOTE in self.watermarks:
            guaranteed.append(self.watermarks[Tier.REMOTE])
        newest = max((one for one in guaranteed if self.in_current_history(one)), default=Generation(0, 0))
        if (chosen or Generation(0, 0)) < newest:
            raise InvariantViolation(f"{chosen} was restored, but {newest} was committed")
