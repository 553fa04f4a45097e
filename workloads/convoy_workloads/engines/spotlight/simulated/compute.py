"""The samples of the simulated workers. They are computed in batches, ahead of the virtual clock.

That changes no bit, because a sample depends on its request and the weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convoy_workloads.engines.spotlight.learning.grpo import Scored
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.problem import Problem
from convoy_workloads.engines.spotlight.learning.reward import rewards
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.params import Selection
from convoy_workloads.engines.spotlight.workers import noise_key
from convoy_workloads.spot.ledger.request import Request, RequestKind

AHEAD = 8
"""Seeds of a prompt that are computed together while exploring."""
KEPT_VERSIONS = 2


class Compute:
    """Computes samples, and keeps them until their version is dropped."""

    def __init__(self, sampler: Sampler, problem: Problem, selection: Selection) -> None:
        self._sampler = sampler
        self._problem = problem
        self._selection = selection
        self._policies: dict[int, Policy] = {}
        self._expected: dict[str, Request] = {}
        self._found: dict[int, dict[str, Scored]] = {}
        """Samples by version and id of the request."""

    def publish(self, version: int, policy: Policy) -> None:
        """Add the weights of a version. Drop the weights of old versions, with their samples."""
        self._policies[version] = policy
        self._found.setdefault(version, {})
        for old in [one for one in self._policies if one <= version - KEPT_VERSIONS]:
            del self._policies[old], self._found[old]
        self._expected.clear()

    def expect(self, requests: Sequence[Request]) -> None:
        """Name requests whose samples will soon be needed."""
        self._expected.update((one.id, one) for one in requests)

    def sample(self, request: Request) -> Scored:
        """Return the sample of a request. Raises KeyError if the weights of its version are dropped."""
        known = self._found[request.version]
        if request.id not in known:
            self._compute(request)
        return known[request.id]

    def _compute(self, request: Request) -> None:
        wanted = {request.id: request}
        wanted |= {key: one for key, one in self._expected.items() if one.version == request.version}
        self._expected = {key: one for key, one in self._expected.items() if key not in wanted}
        if request.kind is RequestKind.EXPLORE:
            prompts = {one.prompt: one for one in wanted.values()}
            for one in prompts.values():
                ahead = (replace(one, seed=one.seed + more) for more in range(AHEAD))
                wanted |= {other.id: other for other in ahead}
        known = self._found[request.version]
        missing = [one for key, one in wanted.items() if key not in known]
        walks = [self._sampler.start(noise_key(one, self._selection)) for one in missing]
        walks = self._sampler.resume(self._policies[request.version], request.version, walks)
        scores = rewards(self._problem, walks)
        for one, walk, reward in zip(missing, walks, scores, strict=True):
            known[one.id] = Scored(walk, reward)
