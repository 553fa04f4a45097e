"""Measures how saves slow training steps. It measures steps with the journal, and blocks of steps with and
without saves.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
import xxhash

from convoy_agents.tiercheck import planes
from e2e.bench.tiercheck.saving.messages import Messages
from e2e.bench.tiercheck.saving.save_methods import wait_until_idle

WIDTH = 1024
"""Width of the layers, and of the matrices that a step multiplies."""
TURNS, LONG_TURNS = 3, 10
"""Number of times that each kind of block is measured: for steps shorter than LONG_SECONDS, and for others.
"""
LONG_SECONDS = 5.0
"""Minimum length of steps in seconds whose rows have a target."""
EVERY = 10
"""Number of steps per save in a SPARSE block, which is a block of steps with few saves."""
_CHUNK = 4 << 20
WITHOUT, EACH, SPARSE = "without saves", "with a save after each", f"with a save every {EVERY}"
GRADIENTS, ENCODING = "copy of the gradients", "encoding of the gradients"
PLAIN_JOURNAL = "with a plain copy and digests of the gradients after each"
"""Block of steps with the least work that a journal of every step needs."""


class Steps:
    """Training steps of one optimizer. Every step has the same gradients."""

    def __init__(self, job: Any, optimizer: torch.optim.Optimizer, messages: Messages) -> None:
        self._job = job
        self._memory = job._checkpoints
        self._optimizer = optimizer
        self._messages = messages
        self._number = 100_000
        self._left, self._right = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
        self._product_seconds = 0.0
        """Seconds of one matrix product, from which a step of a given length is built."""

    def measure_journal(self, rounds: int) -> None:
        """Measure steps that write their gradients to the journal, and the save after each step.

        The first measurement uses the gradients as they are. The second rounds them to bf16 first, because
        models that compute in bf16 give such gradients to an optimizer in fp32.
        """
        self._journal(rounds, "")
        gradients = [one.grad for group in self._optimizer.param_groups for one in group["params"]]
        for one in gradients:
            one.copy_(one.to(torch.bfloat16))
        self._journal(rounds, " of bf16 values")
        plain = PlainJournal(self._optimizer)
        for _ in range(rounds):
            self._messages.value(GRADIENTS, plain.save())

    def _journal(self, rounds: int, kind: str) -> None:
        memory, reported = self._memory, 0
        for _ in range(20 * rounds):
            written = memory._journal_saves.writing
            seconds = self._step()
            self._messages.value(
                f"step with its gradients{kind} written" if written else f"step{kind}", seconds
            )
            began = time.perf_counter()
            saved = self._save()
            seconds = time.perf_counter() - began
            wait_until_idle(memory)
            save = memory._save.written
            if saved and save.extends is not None:
                reported += 1
                self._messages.value(f"segment{kind}", seconds)
                self._messages.value(f"segment bytes{kind}", float(save.length))
            elif saved:
                self._messages.value("full save bytes", float(save.length))
            if reported >= rounds:
                began = time.process_time()
                self._messages.value(f"encoded gradients{kind} / raw", self._encoded_share())
                self._messages.value(f"{ENCODING}{kind}", time.process_time() - began)
                return
        if not reported:
            why = memory._journal_saves._journal.reason or "a full save is expected to be restored sooner"
            self._messages.missing(f"segment bytes{kind}", why)

    def _encoded_share(self) -> float:
        """Return the size of the gradients as encoded for a slow link, divided by their raw size."""
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
        """Measure steps of `length` seconds in blocks. Blocks with saves and blocks without saves
        alternate. The steps of LONG_SECONDS also have blocks with the plain program.

        The agent still works on a save while later steps run. In a block with a save after each step, the
        work on the last save falls after the block. To compensate, such a block starts while an earlier
        save is in progress.
        """
        self._time_product()
        long = length >= LONG_SECONDS
        plain = PlainJournal(self._optimizer)
        blocks = [(WITHOUT, 5), (SPARSE, EVERY), (WITHOUT, 5), (EACH, 6)]
        if long:
            blocks += [(WITHOUT, 5), (PLAIN_JOURNAL, 6)]
        for _ in range(min(LONG_TURNS if long else TURNS, rounds)):
            for kind, count in blocks:
                self.wait_until_idle()
                if kind == EACH:
                    self._fill_journal()
                saves = 0
                began = time.perf_counter()
                for step in range(count):
                    self._work(length)
                    self._step()
                    if kind == PLAIN_JOURNAL:
                        plain.save()
                    due = kind == EACH or (kind == SPARSE and not step)
                    # Skip the save if no buffer is free, as `job.checkpoint` does.
                    if due and not self._memory.busy():
                        saves += self._save()
                name = f"steps of {length:g} s {kind}"
                self._messages.value(name, (time.perf_counter() - began) / count)
                if kind in (EACH, SPARSE):
                    self._messages.value(f"{name}: saves", saves / (count if kind == EACH else 1))

    def wait_until_idle(self) -> None:
        """Wait until no save is in progress and no step is journalled."""
        wait_until_idle(self._memory)
        while self._memory._journal_saves.writing:
            self._step()

    def _fill_journal(self) -> None:
        """Save after each of several short steps, until the job writes its steps to the journal. Returns
        while the last save is still in progress.
        """
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


class PlainJournal:
    """A plain program that copies the gradients once and computes their digests in a thread. It needs at
    least this much to save every step exactly.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._gradients = [one.grad for group in optimizer.param_groups for one in group["params"]]
        self._copies: list[torch.Tensor] = []
        self._digests = threading.Thread()

    def save(self) -> float:
        """Copy the gradients, and start to compute the digests of the copies. Return the seconds of the
        copy.
        """
        if self._digests.ident is not None:
            self._digests.join()
        if not self._copies:
            self._copies = [one.clone() for one in self._gradients]
        began = time.perf_counter()
        for copy, gradient in zip(self._copies, self._gradients, strict=True):
            copy.copy_(gradient)
        seconds = time.perf_counter() - began
        self._digests = threading.Thread(target=self._digest, daemon=True)
        self._digests.start()
        return seconds

    def _digest(self) -> None:
        for one in self._copies:
            xxhash.xxh3_128_digest(one.numpy().data)
