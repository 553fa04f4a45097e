"""What really happened, and whether a restore is right by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.restore import Restore
from convoy_controllers.simulate.checkpoints.shape import Shape


class Broken(AssertionError):
    """A promise of the protocol does not hold."""


class Stuck(AssertionError):
    """Nothing is wrong, but nothing gets on either."""


@dataclass(slots=True)
class Truth:
    """Of one run."""

    tokens: dict[Generation, str] = field(default_factory=dict)
    """The state that each generation was saved from."""
    follows: dict[Generation, Generation] = field(default_factory=dict)
    """What each journal segment was saved behind."""
    began: dict[int, Generation | None] = field(default_factory=dict)
    """What each incarnation that has made a step was restored from."""
    witnesses: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """Who was told where each incarnation began: nodes with their deaths so far, the store."""
    heard: dict[tuple[str, int], int] = field(default_factory=dict)
    """The latest incarnation that each has heard of: nodes with their deaths so far."""
    marks: dict[Tier, Generation] = field(default_factory=dict)
    """The highest that anybody was told."""
    lost: int = 0
    """Memories that were lost."""
    losses: dict[Generation, int] = field(default_factory=dict)
    """How many of them before each generation was saved."""
    restores: int = 0
    committed: int = 0

    def save(self, generation: Generation, token: str, follows: Generation | None = None) -> None:
        """The ranks save this state; as a segment if it follows a save."""
        self.tokens[generation] = token
        if follows is not None:
            self.follows[generation] = follows
        self.losses[generation] = self.lost

    def advance(self, tier: Tier, generation: Generation) -> None:
        """Somebody was told that a generation stands at a tier."""
        if generation > self.marks.get(tier, Generation(0, 0)):
            self.marks[tier] = generation
            self.committed += tier is Tier.LOCAL

    def hear(self, who: tuple[str, int], incarnation: int) -> None:
        """Somebody is told of an incarnation."""
        self.heard[who] = max(incarnation, self.heard.get(who, 0))

    def served(self, who: tuple[str, int], incarnation: int, what: str) -> None:
        """Somebody does for an incarnation what makes its generations stand. Broken when it has heard of a
        later one, which may have looked and chosen already: what comes to stand then is work that nobody
        will go on from.
        """
        if (latest := self.heard.get(who, 0)) > incarnation:
            raise Broken(f"{who[0]} {what} of incarnation {incarnation}, and has heard of {latest}")

    def chain(self, generation: Generation) -> list[Generation]:
        """A save and all that it follows, the base last."""
        found = [generation]
        while found[-1] in self.follows:
            found.append(self.follows[found[-1]])
        return found

    def on_the_line(self, generation: Generation | None) -> bool:
        """Whether the newest incarnation's run goes through this state."""
        newest = max(self.began, default=0)
        limit: Generation | None = Generation(newest, 1 << 60)
        while limit is not None:
            if generation is not None and generation.incarnation == limit.incarnation:
                return generation <= limit
            limit = self.began.get(limit.incarnation)
        return generation is None

    def forgotten(self, chosen: Generation | None, asked: set[tuple[str, int]]) -> bool:
        """Whether nobody was asked who was told of an incarnation after the one that saved this."""
        after = [number for number in self.began if chosen is not None and number > chosen.incarnation]
        return chosen is not None and not any(self.witnesses.get(number, set()) & asked for number in after)

    def judge(
        self,
        found: Restore | None,
        shape: Shape,
        everybody: bool,
        remote: bool,
        asked: set[tuple[str, int]],
    ) -> None:
        """Broken unless the choice is the run's own, whole, and as new as was promised.

        `everybody`: whether all memory that was not lost was asked. `remote`: whether the store was. `asked`:
        who was, or had to be waited for, as in `witnesses`.
        """
        self.restores += 1
        chosen = found.record.generation if found else None
        lost = self.forgotten(chosen, asked) or (chosen is None and not self.marks)
        if not self.on_the_line(chosen) and not lost:
            raise Broken(f"{chosen} is restored, which is off the line {self.began}")
        if found is not None:
            token = self.tokens[found.record.generation]
            whole = {f"{token}/{slot}" for slot in range(len(found.shards))}
            read = {chunk.digest for links in found.shards.values() for chunk in links[-1].manifest.chunks}
            chain = self.chain(found.record.generation)[::-1]
            if any([link.manifest.generation for link in links] != chain for links in found.shards.values()):
                raise Broken(f"{chosen} is not read behind {chain[:-1]}")
            if read != whole or len(found.shards) != shape.world:
                raise Broken(f"{chosen} is put together from {sorted(read)}, not from {sorted(whole)}")
        least = [Generation(0, 0)]
        if (
            everybody
            and (mark := self.marks.get(Tier.PEER))
            and self.lost - self.losses[mark] <= shape.copies
        ):
            least.append(mark)
        if remote and Tier.REMOTE in self.marks:
            least.append(self.marks[Tier.REMOTE])
        promised = max((one for one in least if self.on_the_line(one)), default=Generation(0, 0))
        if (chosen or Generation(0, 0)) < promised:
            raise Broken(f"{chosen} is restored, {promised} was promised")
