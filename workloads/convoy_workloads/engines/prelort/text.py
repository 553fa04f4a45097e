"""Bytes of text: the base model knows source code, the clients have source code and English prose.

Both come with every Python: the sources of its standard library, and the reference manual in `pydoc_data`.
"""

from __future__ import annotations

import importlib

import numpy as np
import torch
from torch import nn

from convoy_workloads.engines.gpt import data
from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.engines.prelort.tasks import Batch
from convoy_workloads.runtime import DataError

CONTEXT, LAYERS, WIDTH, HEADS = 64, 2, 128, 4
"""Shape of the language model: 0.46 million parameters."""
CODE_BYTES = 2_000_000
HELD_OUT_SHARE = 10
PRETRAIN_BATCH = 16
HELD_OUT_WINDOWS = 64
Text = np.ndarray[tuple[int], np.dtype[np.uint8]]


class ByteText:
    """The task `text`."""

    targets: tuple[str, ...] = ("qkv", "out", "widen", "narrow")

    def __init__(self, params: Params) -> None:
        self._seed = params.seed
        code = data.load(CODE_BYTES)
        self._code = code.train
        self._prose, self.held_out_prose = prose()
        shares = np.random.default_rng((params.seed, 20)).beta(
            params.alpha, params.alpha, len(params.clients)
        )
        self._shares = [float(one) for one in shares]
        """Share of prose in the batches of each client."""

    def base(self) -> nn.Module:
        """Return a small transformer over bytes."""
        torch.manual_seed(self._seed)
        return GPT(CONTEXT, LAYERS, WIDTH, HEADS)

    def pretraining(self, step: int) -> Batch:
        """Return windows of source code."""
        return data.batch(self._code, self._seed, step, 0, PRETRAIN_BATCH, CONTEXT)

    def samples(self, client: int) -> int:
        """Return the number of samples of a client, which is the same for all."""
        return 1000

    def batch(self, client: int, number: int, step: int, size: int) -> Batch:
        """Return windows of a client's kinds of text."""
        random = np.random.default_rng((self._seed, 21, client, number, step))
        prose_rows = int(random.binomial(size, self._shares[client]))
        parts = []
        for text, rows in ((self._prose, prose_rows), (self._code, size - prose_rows)):
            if rows:
                parts.append(data.batch(text, int(random.integers(2**31)), step, client, rows, CONTEXT))
        return torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])

    def held_out(self) -> Batch:
        """Return windows of prose that nobody trains on, the same for all seeds."""
        return data.batch(self.held_out_prose, 0, 0, 0, HELD_OUT_WINDOWS, CONTEXT)


def prose() -> tuple[Text, Text]:
    """Return the prose to train on, and the held-out topics. Raises DataError if this Python lacks its
    manual.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise DataError("this image lacks Python's reference manual, the module pydoc_data.topics") from error
    held: list[bytes] = []
    train: list[bytes] = []
    for number, name in enumerate(sorted(topics)):
        (held if number % HELD_OUT_SHARE == 0 else train).append(topics[name].encode())
    train_text, held_text = (np.frombuffer(b"\n".join(one), dtype=np.uint8) for one in (train, held))
    return train_text, held_text
