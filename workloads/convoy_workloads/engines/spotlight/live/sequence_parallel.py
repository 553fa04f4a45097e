"""Sequence parallelism of the transformer: each member of a group computes a part of the tokens.

Everything but the attention acts on each token alone. In each layer a member projects its own tokens and gets
the keys and values of all others. Its own queries attend to all of them. So the results do not depend on the
number of parts. If the group breaks, the leader computes all tokens itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.engines.spotlight.learning.attention import Block
from convoy_workloads.engines.spotlight.learning.policy import PicturePolicy, Policy
from convoy_workloads.engines.spotlight.live.groups import Array, Batch, GroupBroken, Membership, Part

PART_SECONDS = 10.0
"""Longest wait for the part of a peer."""


@torch.no_grad()
def compute_part(policy: PicturePolicy, batch: Batch, member: Membership, epoch: int) -> Array:
    """Return the velocities of this member's tokens. Raises GroupBroken if a peer does not take part."""
    group = member.check(epoch)
    index, degree = group.members.index(member.name), group.degree
    points = torch.from_numpy(batch.points)
    tokens = policy.embed(points, torch.from_numpy(batch.times), torch.from_numpy(batch.prompts))
    tokens = tokens.chunk(degree, dim=1)[index].contiguous()
    for layer, block in enumerate(policy.blocks):
        if not isinstance(block, Block):
            raise TypeError(f"layer {layer} of the policy is no Block")
        queries, keys, values = block.project(tokens)
        own = Part(epoch, batch.number, layer, index, keys.contiguous().numpy(), values.contiguous().numpy())
        all_keys, all_values = map(torch.from_numpy, member.gather(own, PART_SECONDS))
        tokens = block.mix(tokens, queries, all_keys, all_values)
    found: Array = policy.head(tokens).numpy()
    return found


class GroupPolicy(Policy):
    """The policy of a leader: it computes with its group, or alone if there is none."""

    def __init__(self, version: int, whole: Policy, member: Membership, number: Callable[[], int]) -> None:
        """`number` returns a new number for each call."""
        super().__init__()
        self._version = version
        self._whole = whole
        self._member = member
        self._number = number
        self.broken = 0
        """Number of calls that a group did not finish."""

    def forward(self, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
        """Return the velocity of each pixel."""
        group = self._member.group
        if group.degree > 1 and isinstance(self._whole, PicturePolicy):
            try:
                return self._share_forward(self._whole, points, times, prompts)
            except GroupBroken:
                self.broken += 1
        found: Tensor = self._whole(points, times, prompts)
        return found

    def _share_forward(self, policy: PicturePolicy, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
        group = self._member.group
        batch = Batch(self._number(), self._version, points.numpy(), times.numpy(), prompts.numpy())
        answers = [self._member.peers.share(one, group.epoch, batch) for one in group.members[1:]]
        parts = [compute_part(policy, batch, self._member, group.epoch)]
        parts += [one.get(PART_SECONDS) for one in answers]
        return torch.from_numpy(np.concatenate(parts, axis=1))
