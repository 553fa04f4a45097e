"""Made-up videos: waves that move, as latent tokens. A video is a pure function of its number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Videos:
    """Videos of different sizes. The size of each is known in advance, as the resolution of a stored video
    is.
    """

    def __init__(self, count: int, buckets: Sequence[int], channels: int, seed: int) -> None:
        self._count, self._buckets = count, sorted(buckets)
        self._channels, self._seed = channels, seed

    def __len__(self) -> int:
        return self._count

    def tokens(self, number: int) -> int:
        """Return the number of tokens of a video. The sizes follow one another, so all are equally many. A
        size that is listed n times is n times as frequent.
        """
        return self._buckets[number % len(self._buckets)]

    def __getitem__(self, number: int) -> Tensor:
        """Return the video as [S, channels]."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + number)
        size = self.tokens(number)
        rate, phase = torch.rand(2, self._channels, generator=generator)
        place = torch.arange(size)[:, None] / 16
        return torch.sin(place * (0.5 + rate) + 6.3 * phase)


def noised(videos: Tensor, key: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Return noisy videos, their times in [0, 1], and the velocities to predict (flow matching). The noise
    depends only on `key`.
    """
    seed = 0
    for part in key:
        seed = (seed * 1_000_003 + part) % 2**62
    generator = torch.Generator().manual_seed(seed)
    time = torch.rand(len(videos), generator=generator)
    noise = torch.randn(videos.shape, generator=generator)
    share = time[:, None, None]
    return (1 - share) * videos + share * noise, time, noise - videos
