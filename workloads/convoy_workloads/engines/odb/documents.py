"""Documents of different lengths: parts of the source code of Python's standard library, one byte a token."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from convoy_workloads.engines.gpt import data
from convoy_workloads.engines.odb.params import Params
from convoy_workloads.runtime import DataError

Text = np.ndarray[tuple[int], np.dtype[np.uint8]]
_START = re.compile(rb"^(?:class|def|    def|async def) ", re.MULTILINE)
IGNORED = -100
"""Target of padding, which `cross_entropy` ignores."""
PARETO_SHAPE = 2.5
"""Shape of the Pareto distribution. Its coefficient of variation is 0.9 before the lengths are limited."""


class Documents(Dataset[dict[str, Tensor]]):
    """Documents with their next bytes as targets. The length of a document is known only after reading it."""

    def __init__(self, text: Text, spans: list[tuple[int, int]]) -> None:
        """`spans`: start and end of each document in the text."""
        self._text, self._spans = text, spans

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        start, end = self._spans[number]
        values = torch.from_numpy(self._text[start:end].astype(np.int64))
        return {"input_ids": values[:-1], "labels": values[1:], "number": torch.tensor(number)}

    def with_empty(self, every: int) -> Documents:
        """Return these documents, of which one in `every` has no text."""
        spans = [(one[0], one[0]) if number % every == 0 else one for number, one in enumerate(self._spans)]
        return Documents(self._text, spans)

    def lengths(self) -> list[int]:
        """Return the tokens of each document in advance, for the baselines that need them."""
        return [max(0, end - start - 1) for start, end in self._spans]


def load(params: Params) -> tuple[Documents, Documents]:
    """Return the documents to train on, and those of files that are held out.

    Raises DataError if there is too little text.
    """
    corpus = data.load(int(params.data_megabytes * 1e6))
    held_out = _spans(corpus.held_out, params, params.held_out_documents, params.seed + 1)
    # The measured loss must not depend on the policy for long documents, nor have empty ones.
    usable = [(start, min(end, start + params.longest + 1)) for start, end in held_out if end - start > 1]
    if not usable:
        raise DataError("data_megabytes: the held-out text has no document: read more text")
    train = _spans(corpus.train, params, params.samples, params.seed)
    return Documents(corpus.train, train), Documents(corpus.held_out, usable)


def _spans(text: Text, params: Params, count: int, seed: int) -> list[tuple[int, int]]:
    if params.lengths == "functions":
        starts = [0, *(found.start() for found in _START.finditer(text.tobytes())), len(text)]
        listed = list(pairwise(starts))
        return [listed[number % len(listed)] for number in range(count)]
    random = np.random.default_rng((seed, 17))
    tokens = drawn_lengths(params, count, random)
    longest = min(int(tokens.max()) + 1, len(text))
    first = random.integers(0, len(text) - longest + 1, count)
    return [
        (int(start), int(start) + min(int(size) + 1, longest))
        for start, size in zip(first, tokens, strict=True)
    ]


def drawn_lengths(params: Params, count: int, random: np.random.Generator) -> Any:
    """Return random numbers of tokens. Some documents may be empty, or longer than `longest` by a half."""
    mean = params.mean_length
    if params.lengths == "pareto":
        drawn = mean * (PARETO_SHAPE - 1) / PARETO_SHAPE * (1 + random.pareto(PARETO_SHAPE, count))
    else:
        sigma = math.sqrt(math.log(1 + params.length_cv**2))
        drawn = random.lognormal(math.log(mean) - sigma**2 / 2, sigma, count)
    return np.minimum(drawn, 1.5 * params.longest).astype(np.int64)
