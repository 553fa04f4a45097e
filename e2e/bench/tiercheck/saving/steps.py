"""The cost of saving to training steps: the journal, and steps with saves and without, in turns."""

from __future__ import annotations

import time
from typing import Any

import torch

from convoy_agents.tiercheck import planes
from e2e.bench.tiercheck.saving.messages import Messages
from e2e.bench.tiercheck.saving.save_methods import wait_until_idle

WIDTH = 1024
"""Width of the layers, and of the matrices that a step multiplies."""
TURNS = 3
"""Turns of each kind of block, for steps of one length."""
EVERY = 10
"""Steps between two saves of the sparser kind."""
_CHUNK = 4 << 20
WITHOUT, EACH, SPARSE = "without saves", "with a save after each", f"with a save every {EVERY}"


class Steps:
    """Steps of one optimizer, whose gradients are always the same."""

    def __init__(self, job: Any, optimizer: torch.optim.Optimizer, messages: Messages) -> None:
        self._job = job
        self._memory = job._checkpoints
        self._optimizer = optimizer
        self._messages = messages
        self._number = 100_000
        self._left, self._right = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
        self._product_seconds = 0.0
        """Seconds of one product of the two."""

    def measure_journal(self, rounds: int) -> None:
        """Saves after every step: what a step takes whose gradients are written, and the save then.

        First as they are, then with values that bf16 has too: where the model computes in bf16 and the
        optimizer in fp32, it consumes such.
        """
        self._journal(rounds, "")
        gradients = [one.grad for group in self._optimizer.param_groups for one in group["params"]]
        for one in gradients:
            one.copy_(one.to(torch.bfloat16))
        self._journal(rounds, " of bf16 values")

    def _journal(self, rounds: int, kind: str) -> None:
        memory, reported = self._memory, 0
        for _ in range(20 * rounds):
            written = memory._journalling.writing
            seconds = self._step()
            self._messages.value(
                f"step with its gradients{kind} written" if written else f"step{kind}", seconds
            )
            began = time.perf_counter()
            saved = self._save()
            seconds = time.perf_counter() - began
            wait_until_idle(memory)
            save = memory._flight.written
            if saved and save.extends is not None:
                reported += 1
                self._messages.value(f"segment{kind}", seconds)
                self._messages.value(f"segment bytes{kind}", float(save.length))
            elif saved:
                self._messages.value("full save bytes", float(save.length))
            if reported >= rounds:
                self._messages.value(f"encoded gradients{kind} / raw", self._encoded_share())
                return
        if not reported:
            why = memory._journalling._journal.reason or "a full save is expected to be restored sooner"
            self._messages.missing(f"segment bytes{kind}", why)

    def _encoded_share(self) -> float:
        """Bytes of the gradients as they go to peers and stores over a slow line, by bytes of them."""
        gradients = [one.grad for group in self._optimizer.param_groups for one in group["params"]]
        raw_bytes = encoded_bytes = 0
        for one in gradients:
            data = one.contiguous().view(torch.uint8).numpy().tobytes()
            for at in range(0, len(data), _CHUNK):
                chunk = data[at : at + _CHUNK]
                word = planes.best_word(chunk)
                encoded = planes.encode(chunk, word) if word else None
                raw_bytes, encoded_bytes = raw_bytes + len(chunk), encoded_bytes + len(encoded or chunk)
        return encoded_bytes / raw_bytes

    def measure_steps(self, length: float, rounds: int) -> None:
        """Blocks of steps of so many seconds with and without saves, in turns.

        Each block goes on as the one before of its kind has ended: what the agent does behind a save falls
        into the steps after it.
        """
        self._time_product()
        for _ in range(min(TURNS, rounds)):
            for kind, count in ((WITHOUT, 5), (SPARSE, EVERY), (WITHOUT, 5), (EACH, 6)):
                self.wait_until_idle()
                if kind == EACH:
                    self._fill_journal()
                saves = 0
                began = time.perf_counter()
                for step in range(count):
                    self._work(length)
                    self._step()
                    due = kind == EACH or (kind == SPARSE and not step)
                    # As `job.checkpoint` has it: a save that has nowhere to go is left out.
                    if due and not self._memory.busy():
                        saves += self._save()
                name = f"steps of {length:g} s {kind}"
                self._messages.value(name, (time.perf_counter() - began) / count)
                if kind != WITHOUT:
                    self._messages.value(f"{name}: saves", saves / (count if kind == EACH else 1))

    def wait_until_idle(self) -> None:
        """Until nothing is saved and no step is journalled."""
        wait_until_idle(self._memory)
        while self._memory._journalling.writing:
            self._step()

    def _fill_journal(self) -> None:
        """Saves after quick steps, until they are journalled; the last one is still under way."""
        for _ in range(4):
            wait_until_idle(self._memory)
            self._step()
            self._save()

    def _time_product(self, products: int = 50) -> None:
        began = time.perf_counter()
        for _ in range(products):
            self._left @ self._right
        self._product_seconds = (time.perf_counter() - began) / products

    def _work(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds / self._product_seconds))):
            self._left @ self._right

    def _step(self) -> float:
        self._number += 1
        began = time.perf_counter()
        self._optimizer.step()
        return time.perf_counter() - began

    def _save(self) -> bool:
        saved: bool = self._memory.start(self._job._state.collect(), self._number)
        return saved
