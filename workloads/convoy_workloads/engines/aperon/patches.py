"""Real vectors for the bench: patches of 16 x 16 pixels with three colours, from two photographs.

The photographs are the sample images of scikit-learn. Base vectors and queries have different positions.
Nearby patches overlap, as frames of a video or passages of a text do.
"""

from __future__ import annotations

import numpy as np

from convoy_workloads.kernels.hntl_arrays import Floats

SIDE = 16
DIMENSION = SIDE * SIDE * 3


def patches(base: int, queries: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Return base vectors and queries, with values from 0 to 1. Needs scikit-learn and pillow."""
    from sklearn.datasets import load_sample_images  # noqa: PLC0415

    windows = []
    for image in load_sample_images().images:
        own = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE, image.shape[2]))
        windows.append(own.reshape(-1, SIDE, SIDE, image.shape[2]))
    counts = np.cumsum([len(one) for one in windows])
    chosen = np.random.default_rng(seed).choice(counts[-1], base + queries, replace=False)
    found = np.empty((base + queries, DIMENSION), np.float32)
    for number, one in enumerate(windows):
        own = np.searchsorted(counts, chosen, side="right") == number
        first = counts[number] - len(one)
        found[own] = one[chosen[own] - first].reshape(-1, DIMENSION)
    found /= 255
    return found[:base], found[base:]
