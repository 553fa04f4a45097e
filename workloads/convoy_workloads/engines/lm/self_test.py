"""The self-test of a loaded model: the paged forward pass must agree with the plain one, and rows must not
influence each other.
"""

from __future__ import annotations

import numpy as np
import torch

from convoy_workloads.engines.lm.blocks import BlockPool
from convoy_workloads.engines.lm.pipeline import Pipeline
from convoy_workloads.engines.lm.scheduler import Scheduler
from convoy_workloads.serving.protocol import Prompt, Sampling, SelfTestFailed

LENGTH = 24
"""Number of tokens of the tested sequence."""


def run(pipeline: Pipeline) -> None:
    """Test the model, then clear its cache. Raises SelfTestFailed if a check fails."""
    random = np.random.default_rng(0)
    paged = pipeline.paged
    length, vocabulary = min(LENGTH, paged.layout.context), paged.model.shape.vocabulary
    tokens = [int(one) for one in random.integers(0, vocabulary, length)]
    alone = _logits(pipeline, tokens, beside=[])
    with torch.inference_mode():
        plain = paged.model.plain(torch.tensor([tokens], device=paged.device))[0, -1].double().cpu().numpy()
    if not np.isfinite(alone).all():
        raise SelfTestFailed("the model's logits are not finite")
    difference = float(np.abs(alone - plain).max())
    if difference > paged.model.tolerance * max(1.0, float(np.abs(plain).max())):
        raise SelfTestFailed(
            f"the paged forward pass differs from the plain one by {difference:.2g}: this machine is faulty"
        )
    if paged.layout.rows > 1:
        others = [
            [int(one) for one in random.integers(0, vocabulary, 3)]
            for _ in range(min(2, paged.layout.rows - 1))
        ]
        beside = _logits(pipeline, tokens, beside=others)
        if not np.array_equal(alone, beside):
            raise SelfTestFailed(
                "a sequence gets other bits beside other sequences on this processor: set params.rows to a "
                "multiple of 16"
            )
    pipeline.clear()


def _logits(
    pipeline: Pipeline, tokens: list[int], beside: list[list[int]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the logits after `tokens`. The sequences `beside` come first in the batch. They are continued as
    long as `tokens` is computed.
    """
    layout = pipeline.layout
    pool = BlockPool(pipeline.paged.count, reuse=False)
    scheduler = Scheduler(pool, layout.rows, layout.rows, layout.block)
    for number, one in enumerate([*beside, tokens]):
        scheduler.admit(Prompt(number, tuple(one), Sampling(1, 0)))
    while True:
        rows = scheduler.plan()
        logits = pipeline.compute(rows)
        scheduler.done(rows)
        for number, row in enumerate(row for row in rows if row.last):
            if row.sequence.prompt.id == len(beside):
                return logits[number].double().cpu().numpy()
            if len(row.sequence.tokens) < layout.context:
                row.sequence.tokens.append(number)
            else:
                scheduler.remove(row.sequence.prompt.id)
