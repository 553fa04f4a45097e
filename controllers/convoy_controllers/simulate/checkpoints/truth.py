"""What really happened, and whether a restore is right by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.restore import Restore
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.violation import InvariantViolation


class NoProgress(AssertionError):
    """Nothing is wrong, but nothing gets on either."""


@dataclass(slots=True)
class Truth:
    """Of one run."""

    tokens: dict[Generation, str] = field(default_factory=dict)
    """The state that each generation was saved from."""
    predecessors: dict[Generation, Generation] = field(default_factory=dict)
    """What each journal segment was saved behind."""
    restored_from: dict[int, Generation | None] = field(default_factory=dict)
    """What each incarnation that has made a step was restored from."""
    informed: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """Who was told where each incarnation restored_from: nodes with their memory_losses so far, the store."""
    latest_incarnations: dict[tuple[str, int], int] = field(default_factory=dict)
    """The latest incarnation that each has latest_incarnations of: nodes with their memory_losses so far."""
    watermarks: dict[Tier, Generation] = field(default_factory=dict)
    """The highest that anybody was told."""
    memory_losses: int = 0
    """Memories that were lost."""
    losses_before: dict[Generation, int] = field(default_factory=dict)
    """How many of them before each generation was saved."""
    restores: int = 0
    committed: int = 0

    def save(self, generation: Generation, token: str, predecessors: Generation | None = None) -> None:
        """The ranks save this state; as a segment if it predecessors a save."""
        self.tokens[generation] = token
        if predecessors is not None:
            self.predecessors[generation] = predecessors
        self.losses_before[generation] = self.memory_losses

    def advance(self, tier: Tier, generation: Generation) -> None:
        """Somebody was told that a generation stands at a tier."""
        if generation > self.watermarks.get(tier, Generation(0, 0)):
            self.watermarks[tier] = generation
            self.committed += tier is Tier.LOCAL

    def record_incarnation(self, who: tuple[str, int], incarnation: int) -> None:
        """Somebody is told of an incarnation."""
        self.latest_incarnations[who] = max(incarnation, self.latest_incarnations.get(who, 0))

    def check_not_superseded(self, who: tuple[str, int], incarnation: int, what: str) -> None:
        """Somebody does for an incarnation what makes its generations stand. InvariantViolation when it knows a
        later one, which may have looked and chosen already: what comes to stand then is work that nobody
        will go on from.
        """
        if (latest := self.latest_incarnations.get(who, 0)) > incarnation:
            raise InvariantViolation(
                f"{who[0]} {what} of incarnation {incarnation}, and has heard of {latest}"
            )

    def chain(self, generation: Generation) -> list[Generation]:
        """A save and all that it predecessors, the base last."""
        found = [generation]
        while found[-1] in self.predecessors:
            found.append(self.predecessors[found[-1]])
        return found

    def in_current_history(self, generation: Generation | None) -> bool:
        """Whether the newest incarnation's run goes through this state."""
        newest = max(self.restored_from, default=0)
        limit: Generation | None = Generation(newest, 1 << 60)
        while limit is not None:
            if generation is not None and generation.incarnation == limit.incarnation:
                return generation <= limit
            limit = self.restored_from.get(limit.incarnation)
        return generation is None

    def successors_unknown(self, chosen: Generation | None, consulted: set[tuple[str, int]]) -> bool:
        """Whether nobody was consulted who was told of an incarnation after the one that saved this."""
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
        """InvariantViolation unless the choice is the run's own, whole, and as new as was promised.

        `all_consulted`: whether all memory that was not lost was consulted. `remote`: whether the store was. `consulted`:
        who was, or had to be waited for, as in `informed`.
        """
        self.restores += 1
        chosen = found.record.generation if found else None
        lost = self.successors_unknown(chosen, consulted) or (chosen is None and not self.watermarks)
        if not self.in_current_history(chosen) and not lost:
            raise InvariantViolation(f"{chosen} is restored, which is off the line {self.restored_from}")
        if found is not None:
            token = self.tokens[found.record.generation]
            whole = {f"{token}/{slot}" for slot in range(len(found.shards))}
            read = {chunk.digest for links in found.shards.values() for chunk in links[-1].manifest.chunks}
            chain = self.chain(found.record.generation)[::-1]
            if any([link.manifest.generation for link in links] != chain for links in found.shards.values()):
                raise InvariantViolation(f"{chosen} is not read behind {chain[:-1]}")
            if read != whole or len(found.shards) != shape.slots:
                raise InvariantViolation(
                    f"{chosen} is put together from {sorted(read)}, not from {sorted(whole)}"
                )
        least = [Generation(0, 0)]
        if (
            all_consulted
            and (watermark := self.watermarks.get(Tier.PEER))
            and self.memory_losses - self.losses_before[watermark] <= shape.copies
        ):
            least.append(watermark)
        if remote and Tier.REMOTE in self.watermarks:
            least.append(self.watermarks[Tier.REMOTE])
        promised = max((one for one in least if self.in_current_history(one)), default=Generation(0, 0))
        if (chosen or Generation(0, 0)) < promised:
            raise InvariantViolation(f"{chosen} is restored, {promised} was promised")
