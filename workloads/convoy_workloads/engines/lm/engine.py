"""The engine that serves a language model. The front is `convoy_workloads.serving`; this module is the
iteration: plan, forward pass, choice of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from convoy_workloads.engines.lm import models, self_test
from convoy_workloads.engines.lm.blocks import BlockPool
from convoy_workloads.engines.lm.forward import Layout, PagedModel
from convoy_workloads.engines.lm.models import LoadedModel
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.engines.lm.pipeline import Notice, Pipeline, layers_of
from convoy_workloads.engines.lm.sampling import choose
from convoy_workloads.engines.lm.scheduler import Scheduler
from convoy_workloads.engines.lm.tokenizer import ModelTokenizer
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.group import Group, form
from convoy_workloads.serving.protocol import ModelCard, ModelError, Prompt, Token, Tokenizer, Usage
from convoy_workloads.serving.rank import run

MAX_GROUP = 8
"""Maximum number of ranks of a replica."""


class LanguageModel:
    """The engine of one rank. Rank 0 of a replica serves, and the other ranks follow it."""

    def __init__(
        self, params: Params, path: Path | None, device: torch.device, group: Group | None = None
    ) -> None:
        """`path`: folder of the model; None to use the engine's own model."""
        self.tokenizer: Tokenizer
        self.tokenizer = self._tokenizer = ModelTokenizer()
        self._params = params
        self._path = path
        self._device = device
        self._group = group or Group()
        self._pipeline: Pipeline | None = None
        """The loaded model; None before the first load."""
        self._scheduler = Scheduler(BlockPool(1, reuse=False), 1, 1, 1)

    def load(self, renew: Callable[[], None]) -> ModelCard:
        """Load the model and allocate its cache. Raises ModelError if the model cannot be used, and PeerLost
        if the other ranks of the replica are not there.
        """
        params = self._params
        first = self._pipeline is None
        if self._pipeline is not None and self._group.rank == 0:
            self._pipeline.announce(Notice.LOAD)
        loaded = self._read(renew)
        model = loaded.model
        self._tokenizer.current = loaded.tokenizer
        blocks = params.kv_tokens // params.block
        context = min(model.shape.context, blocks * params.block)
        if context < 2:
            raise ModelError(f"params.kv_tokens: {params.kv_tokens} tokens are too few for a sequence")
        layers = layers_of(self._group, model.shape.layers)
        paged = PagedModel(model, layers, Layout(params.rows, params.block, context), blocks)
        self._pipeline = Pipeline(self._group, paged)
        self._scheduler = Scheduler(
            BlockPool(blocks, params.prefix_reuse), params.rows, params.max_sequences, params.block
        )
        renew()
        if first:
            form(self._group, renew)
        return ModelCard(params.name, context, loaded.source, loaded.facts)

    def _read(self, renew: Callable[[], None]) -> LoadedModel:
        """Return the model, which is read from its files."""
        return models.load(self._path, self._params, self._device, renew)

    def self_test(self) -> None:
        """Compare the paged model with the plain one. Raises SelfTestFailed if they differ."""
        self_test.run(self._loaded)

    def admit(self, prompt: Prompt) -> bool:
        """Add a prompt to the batch. Return False if the batch is full."""
        return self._scheduler.admit(prompt)

    def step(self) -> list[Token]:
        """Compute the rows of one iteration. Return the new tokens."""
        rows = self._scheduler.plan()
        logits = self._loaded.compute(rows)
        self._scheduler.done(rows)
        newest = [number for number, row in enumerate(rows) if row.last]
        if not newest:
            return []
        table = logits.double().cpu().numpy()
        found = []
        for number, own in zip(newest, table, strict=True):
            one = rows[number].sequence
            reused = one.reused if not one.generated else None
            token = choose(one.prompt, one.generated, np.array(own), reused)
            one.tokens.append(token.token)
            found.append(token)
        return found

    def cancel(self, sequence: int) -> None:
        """Remove a sequence from the batch."""
        self._scheduler.remove(sequence)

    def idle(self) -> None:
        """Show the other ranks that this one is alive."""
        self._loaded.announce(Notice.IDLE)

    def usage(self) -> Usage:
        """Return the use of the batch and of the cache."""
        scheduler = self._scheduler
        return Usage(
            len(scheduler.running),
            len(scheduler.preempted),
            scheduler.pool.used / max(1, scheduler.pool.count),
        )

    def close(self) -> None:
        """Let the other ranks end."""
        if self._pipeline is not None:
            self._pipeline.end()

    def follow(self, heartbeat: HeartbeatWriter) -> None:
        """Compute this rank's part of each iteration until rank 0 ends. Raises RuntimeError if a rank is
        lost.
        """
        heartbeat.start()
        while True:
            self.load(heartbeat.touch)
            if self._loaded.follow(heartbeat.serve) is Notice.END:
                heartbeat.drain()
                return

    @property
    def _loaded(self) -> Pipeline:
        assert self._pipeline is not None  # noqa: S101 - the front loads first
        return self._pipeline


def make(params: Params, path: Path | None, group: Group) -> LanguageModel:
    """Return the engine for this machine: on the GPU if there is one, else on CPUs."""
    torch.set_num_threads(params.threads)
    return LanguageModel(params, path, torch.device("cuda" if torch.cuda.is_available() else "cpu"), group)


def limits(params: Params) -> Limits:
    """Return the limits of the front."""
    return Limits(params.queue, params.max_body_bytes, params.request_seconds)


def main() -> None:
    """Run one rank of a replica."""
    run("lm", Params, make, limits, MAX_GROUP)


if __name__ == "__main__":
    main()
