"""The training text: the sources of Python's standard library in the image, one byte per token.

Every image holds this real text, so the example downloads nothing. A hash of each file's name decides
whether it is trained on or held out, so no held-out byte is ever trained on.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.runtime import DataError

HELD_OUT_SHARE = 10
"""One file in this many is held out."""


@dataclass(frozen=True)
class Corpus:
    """The two parts of the text, as arrays of uint8."""

    train: np.ndarray[tuple[int], np.dtype[np.uint8]]
    held_out: np.ndarray[tuple[int], np.dtype[np.uint8]]


def load(limit: int, folder: Path | None = None) -> Corpus:
    """Return at most `limit` bytes of the standard library's sources, in an order that depends only on file
    names.

    Raises DataError if `folder` has too little text for both parts.
    """
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in folder.glob("*/*.py") if "site-packages" not in path.parts]
    files += folder.glob("*.py")
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    left = limit
    # Sorted by hash, not by name, so that a prefix is a fair sample that includes held-out files.
    for path in sorted(files, key=lambda path: _hash(path.relative_to(folder))):
        if left <= 0:
            break
        text = path.read_bytes()[:left]
        left -= len(text)
        parts[_hash(path.relative_to(folder)) % HELD_OUT_SHARE == 0].append(text)
    corpus = Corpus(*(np.frombuffer(b"\n".join(parts[held]), dtype=np.uint8) for held in (False, True)))
    if min(len(corpus.train), len(corpus.held_out)) < 1024:
        raise DataError(
            f"{folder} has {len(corpus.train)} bytes to train on and {len(corpus.held_out)} held out: "
            "this image lacks the sources of Python's standard library"
        )
    return corpus


def _hash(name: Path) -> int:
    return int.from_bytes(hashlib.sha256(name.as_posix().encode()).digest()[:8], "big")


def batch(
    text: np.ndarray[tuple[int], np.dtype[np.uint8]],
    seed: int,
    step: int,
    rank: int,
    size: int,
    context: int,
) -> tuple[Tensor, Tensor]:
    """Return inputs and targets [size, context] of a rank's step: windows of `text` at random places.

    A pure function of (seed, step, rank): a restored run needs no cursor and gets the same batches.
    """
    random = np.random.default_rng((seed, step, rank))
    starts = random.integers(0, len(text) - context, size)
    windows = torch.from_numpy(
        np.stack([text[start : start + context + 1] for start in starts]).astype(np.int64)
    )
    return windows[:, :-1], windows[:, 1:]
