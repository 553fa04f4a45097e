"""The training text: the source code of Python's standard library in the image. Each byte is one token.

Every image contains this text, so the example downloads nothing. A hash of each file's name decides whether
the file is used for training or held out. So no held-out byte is ever used for training.
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
"""One of this many files is held out."""


@dataclass(frozen=True)
class Corpus:
    """The training part and the held-out part of the text, as arrays of uint8."""

    train: np.ndarray[tuple[int], np.dtype[np.uint8]]
    held_out: np.ndarray[tuple[int], np.dtype[np.uint8]]


def load(limit: int, folder: Path | None = None) -> Corpus:
    """Return at most `limit` bytes of the standard library's source code. The order of the files depends
    only on their names.

    Raises DataError if `folder` has too little text for the training part or the held-out part.
    """
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in folder.glob("*/*.py") if "site-packages" not in path.parts]
    files += folder.glob("*.py")
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    left = limit
    # Sort by hash, not by name, so that the first `limit` bytes are a fair sample of all files and include
    # held-out files.
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
    """Return the inputs and targets of a rank's step, each of shape [size, context]. They are windows of
    `text` at random positions.

    The result depends only on (seed, step, rank), so a restored run gets the same batches without saving a
    position in the data.
    """
    random = np.random.default_rng((seed, step, rank))
    starts = random.integers(0, len(text) - context, size)
    windows = torch.from_numpy(
        np.stack([text[start : start + context + 1] for start in starts]).astype(np.int64)
    )
    return windows[:, :-1], windows[:, 1:]
