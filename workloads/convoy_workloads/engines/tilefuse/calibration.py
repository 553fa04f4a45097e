"""Text for calibration and for measuring the loss: files that gpt never trains on.

The first half of this text is for calibration, the second half for measuring.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.engines.gpt import data
from convoy_workloads.runtime import DataError
from convoy_workloads.serving.protocol import ModelError, Tokenizer

BYTES = 4_000_000
"""Bytes of the text of gpt, of which a tenth is held out."""
LENGTH = 128
"""Maximum number of tokens of a sample."""


def calibration(tokenizer: Tokenizer, samples: int, context: int, seed: int = 0) -> Tensor:
    """Return windows of tokens [samples, T] for calibration. Raises ModelError if there is no text."""
    tokens = _tokens(tokenizer)
    return _windows(tokens[: len(tokens) // 2], samples, min(LENGTH, context), seed)


def measuring(tokenizer: Tokenizer, samples: int, context: int, seed: int = 0) -> Tensor:
    """Return windows of tokens [samples, T + 1] to measure the loss. Raises ModelError without text."""
    tokens = _tokens(tokenizer)
    return _windows(tokens[len(tokens) // 2 :], samples, min(LENGTH, context) + 1, seed)


def _tokens(tokenizer: Tokenizer) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    try:
        text = data.load(BYTES).held_out
    except DataError as error:
        raise ModelError(f"there is no text for calibration: {error}") from error
    return np.array(tokenizer.encode(bytes(text).decode("utf-8", "replace")), np.int64)


def _windows(
    tokens: np.ndarray[tuple[int], np.dtype[np.int64]], samples: int, length: int, seed: int
) -> Tensor:
    if len(tokens) <= length:
        raise ModelError(f"the text for calibration has {len(tokens)} tokens, which are too few for {length}")
    starts = np.random.default_rng(seed).integers(0, len(tokens) - length, samples)
    return torch.from_numpy(np.stack([tokens[start : start + length] for start in starts]))
