"""Counter-based random numbers. They depend on the request alone, so any worker can draw them again.

Philox is a block cipher of a counter (J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC
2011).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
_LATENT, _WALK = 0, 1
"""Upper word of the counter for the start of a trajectory, and for the noise of its steps."""


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """The identity of a trajectory's noise."""

    job: str
    prompt: int
    latent: int
    """Seed of the start."""
    walk: tuple[int, ...]
    """Seed of the noise of the steps."""


def draw(key: NoiseKey, steps: int, size: int) -> Floats:
    """Return the noise of a trajectory, of shape [steps + 1, size]. Row 0 is the start, and row `s` the noise
    of step `s`. The first rows do not depend on the number of steps.
    """
    latent = _normals(key, _LATENT, (key.latent,), (1, size))
    return np.concatenate([latent, _normals(key, _WALK, key.walk, (steps, size))])


def _normals(key: NoiseKey, use: int, seed: tuple[int, ...], shape: tuple[int, int]) -> Floats:
    text = repr((key.job, key.prompt, seed)).encode()
    cipher = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")
    bits = np.random.Philox(key=cipher, counter=use << 192)
    return np.random.Generator(bits).standard_normal(shape, dtype=np.float32)
