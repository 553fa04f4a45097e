"""Counter-based random numbers. They depend on the request alone, so any worker can draw them again.

Philox is a block cipher of a counter (J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC
2011).
"""

from __future__ import annotations

import hashlib
import threading
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


class _Stream(threading.local):
    """The generator of a thread. To set its state is three times as fast as to make a generator."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)

    def normals(self, key: int, use: int, shape: tuple[int, int]) -> Floats:
        """Return the first numbers of a stream."""
        halves = np.array([key & _WORD, key >> 64], np.uint64)
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": np.array([0, 0, 0, use], np.uint64), "key": halves},
            "buffer": _EMPTY,
            "buffer_pos": len(_EMPTY),
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator.standard_normal(shape, dtype=np.float32)


_WORD = 2**64 - 1
_EMPTY = np.zeros(4, np.uint64)
_STREAM = _Stream()


def start_noise(key: NoiseKey, size: int) -> Floats:
    """Return the start of a trajectory, of shape [size]."""
    return _normals(key, _LATENT, (key.latent,), (1, size)).reshape(size)


def step_noise(key: NoiseKey, steps: int, size: int) -> Floats:
    """Return the noise of the steps of a trajectory, of shape [steps, size]. The first rows do not depend on
    the number of steps.
    """
    return _normals(key, _WALK, key.walk, (steps, size))


def _normals(key: NoiseKey, use: int, seed: tuple[int, ...], shape: tuple[int, int]) -> Floats:
    text = repr((key.job, key.prompt, seed)).encode()
    cipher = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")
    return _STREAM.normals(cipher, use, shape)
