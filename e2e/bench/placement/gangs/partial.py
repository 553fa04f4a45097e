"""The time that pods hold nodes while their gang is incomplete. This module does no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass
class PartialTimes:
    """The longest time in seconds that a pod held a node without its whole gang."""

    size: int
    """Number of pods of each gang."""
    longest: float = 0.0
    _since: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """Time from which each holding pod of an incomplete gang counts, by gang and uid of the pod."""
    _complete: set[str] = field(default_factory=set)

    def update(self, holding: Mapping[str, Collection[str]], now: float) -> None:
        """Record which pods hold nodes now: their uids, by gang. Gangs that are not listed hold none.

        A gang that was complete stays complete until none of its pods holds a node, because its pods do not
        end at the same moment.
        """
        for gang in {*holding, *self._since, *self._complete}:
            pods = set(holding.get(gang, ()))
            if len(pods) >= self.size:
                self._complete.add(gang)
            if not pods:
                self._complete.discard(gang)
            counting = self._since[gang]
            still = pods if gang not in self._complete else set()
            for uid in [one for one in counting if one not in still]:
                self.longest = max(self.longest, now - counting.pop(uid))
            for uid in still:
                self.longest = max(self.longest, now - counting.setdefault(uid, now))
            if not counting:
                del self._since[gang]
