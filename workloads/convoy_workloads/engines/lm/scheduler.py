"""The scheduler of iterations: it decides which tokens the next iteration computes. Pure.

Every iteration computes the same number of rows, and each row is one token of one sequence. A sequence that
generates gets one row, for its newest token. The other rows go to prompts, the oldest first. Rows without a
token are padding. The result of a row depends only on its own sequence, so it does not matter in which
iteration, in which row or beside which other sequences a token is computed (`forward.py`).

If a sequence needs a block and all are used, the sequence that was admitted last gives its blocks back. It
is computed again later, which gives the same keys and values.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from convoy_workloads.engines.lm.blocks import BlockPool, block_keys
from convoy_workloads.serving.protocol import Prompt


@dataclass(eq=False)
class Sequence:
    """A prompt and its continuation."""

    prompt: Prompt
    tokens: list[int]
    """The prompt's tokens and the generated tokens."""
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    """Number of tokens whose keys and values are in the blocks."""
    reused: int = 0
    """Number of the prompt's tokens that were in the cache when the sequence was admitted."""
    keys: list[bytes] = field(default_factory=list)
    """Keys of the full blocks of `tokens`, as far as they are known."""
    registered: int = 0
    """Number of blocks whose keys are recorded in the pool."""

    @property
    def generated(self) -> int:
        """Number of generated tokens."""
        return len(self.tokens) - len(self.prompt.tokens)


@dataclass(frozen=True, slots=True)
class Row:
    """One token to compute."""

    sequence: Sequence
    position: int
    last: bool
    """True if the token is the newest of its sequence, so that the row gives the next token."""


class Scheduler:
    """The sequences in the batch, and those that have given their blocks back."""

    def __init__(self, pool: BlockPool, rows: int, max_sequences: int, block: int) -> None:
        """`rows`: number of rows of an iteration. `block`: number of tokens in a block."""
        self.pool = pool
        self.running: list[Sequence] = []
        """Sequences with blocks, in the order of their admission."""
        self.preempted: deque[Sequence] = deque()
        """Sequences without blocks, in the order of their admission."""
        self.preemptions = 0
        """Number of times that a sequence has given its blocks back."""
        self._rows = rows
        self._max_sequences = max_sequences
        self._block = block

    def admit(self, prompt: Prompt) -> bool:
        """Add a prompt. Return False if the batch is full, or if the prompt's blocks are not available."""
        if self.preempted or len(self.running) >= self._max_sequences:
            return False
        sequence = Sequence(prompt, list(prompt.tokens))
        if not self._place(sequence):
            return False
        sequence.reused = sequence.computed
        return True

    def plan(self) -> list[Row]:
        """Return the rows of the next iteration. The blocks of each row are allocated."""
        while self.preempted and self._place(self.preempted[0]):
            self.preempted.popleft()
        rows: list[Row] = []
        for generating in (True, False):
            for one in list(self.running):
                if one not in self.running or (len(one.tokens) - one.computed == 1) is not generating:
                    continue
                if len(rows) >= self._rows:
                    break
                rows += self._rows_of(one, self._rows - len(rows))
        return [row for row in rows if row.sequence.blocks]

    def done(self, rows: list[Row]) -> None:
        """Record that the rows of an iteration were computed. Full blocks may be shared from now on."""
        for row in rows:
            row.sequence.computed = max(row.sequence.computed, row.position + 1)
        for one in {id(row.sequence): row.sequence for row in rows}.values():
            full = one.computed // self._block
            if full > one.registered:
                one.keys = block_keys(one.tokens, self._block, one.keys)
                for number in range(one.registered, full):
                    self.pool.register(one.blocks[number], one.keys[number])
                one.registered = full

    def remove(self, sequence: int) -> None:
        """Remove the sequence whose prompt has this id, if there is one."""
        for one in self.running:
            if one.prompt.id == sequence:
                self.running.remove(one)
                self.pool.release(one.blocks)
                return
        for one in self.preempted:
            if one.prompt.id == sequence:
                self.preempted.remove(one)
                return

    def _place(self, sequence: Sequence) -> bool:
        """Give a sequence its blocks, as far as they are in the cache, and move it to the batch. Return False
        if the other blocks that it needs are not available.
        """
        sequence.keys = block_keys(sequence.tokens, self._block, sequence.keys)
        # The newest token is always computed, because its row gives the next token.
        most = (len(sequence.tokens) - 1) // self._block
        shared: list[int] = []
        for key in sequence.keys[:most]:
            block = self.pool.share(key)
            if block is None:
                break
            shared.append(block)
        needed = len(sequence.tokens) // self._block + 1 - len(shared)
        if needed > self.pool.available and self.running:
            self.pool.release(shared)
            return False
        sequence.blocks = shared
        sequence.registered = len(shared)
        sequence.computed = len(shared) * self._block
        self.running.append(sequence)
        return True

    def _rows_of(self, sequence: Sequence, most: int) -> list[Row]:
        """Return up to `most` rows of a sequence. Return none if the sequence had to give its blocks back."""
        end = min(len(sequence.tokens), sequence.computed + most)
        while len(sequence.blocks) * self._block < end:
            block = self.pool.allocate()
            if block is not None:
                sequence.blocks.append(block)
                continue
            last = self.running[-1]
            self._preempt(last)
            if last is sequence:
                return []
        newest = len(sequence.tokens) - 1
        return [Row(sequence, at, at == newest) for at in range(sequence.computed, end)]

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks, sequence.computed, sequence.registered = [], 0, 0
        self.preempted.appendleft(sequence)
        self.preemptions += 1
