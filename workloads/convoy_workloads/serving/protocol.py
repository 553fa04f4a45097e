"""The protocol between the serving front and an engine that generates tokens.

The compute thread calls all methods of an engine, except those of its tokenizer. So an engine needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class SelfTestFailed(Exception):
    """Raised if an engine computes wrong results on this machine. The message names the check."""


class ModelError(Exception):
    """Raised if the model cannot be loaded. The message names the file or the tensor."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The choice of the next token from the model's distribution."""

    max_tokens: int
    seed: int
    temperature: float = 1.0
    """0 always chooses the most likely token."""
    top_p: float = 1.0
    top_k: int = 0
    """Number of the most likely tokens to choose from; 0 to choose from all tokens."""
    logprobs: int | None = None
    """Number of alternatives to report with each token; None to report no probabilities."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt to continue."""

    id: int
    tokens: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Token:
    """A token that the engine has generated for a sequence."""

    sequence: int
    """Id of the sequence's prompt."""
    token: int
    logprob: float = 0.0
    """Natural logarithm of the token's probability, if the sequence requests it."""
    alternatives: tuple[tuple[int, float], ...] = ()
    """The most likely tokens and the logarithms of their probabilities, if the sequence requests them."""
    reused: int | None = None
    """Number of the prompt's tokens whose keys and values were in the cache. Only the first token has it."""


@dataclass(frozen=True)
class ModelCard:
    """Facts about the loaded model."""

    name: str
    context: int
    """Maximum number of tokens of a prompt and its continuation together."""
    source: str
    """Origin of the weights, in one sentence for users."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Further facts for `/v1/models`, such as the job and the step of the checkpoint."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The engine's use of its resources."""

    running: int = 0
    """Number of sequences in the batch."""
    preempted: int = 0
    """Number of admitted sequences that wait for memory."""
    cache_share: float = 0.0
    """Share of the cache that running sequences use, from 0 to 1."""


class Decoder(Protocol):
    """The state of turning the tokens of one sequence into text."""

    def feed(self, token: int) -> str:
        """Return the text that the token completes. It may be empty, because a character may consist of
        several tokens.
        """
        ...

    def flush(self) -> str:
        """Return the text of the tokens that completed no character."""
        ...


class Tokenizer(Protocol):
    """The conversion between text and tokens. All threads may use it."""

    vocabulary: int
    """Number of tokens."""
    end: int | None
    """Token that ends a text; None if the model has no such token."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decoder(self) -> Decoder:
        """Return the decoder for a new sequence."""
        ...

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""
        ...

    def render_chat(self, messages: Sequence[tuple[str, str]]) -> str:
        """Return the prompt for a conversation. Each message is a role and a text."""
        ...


class ServingEngine(Protocol):
    """An engine that continues sequences, many at a time."""

    tokenizer: Tokenizer

    def load(self, renew: Callable[[], None]) -> ModelCard:
        """Load the model. Call `renew` at least once a second as long as the load makes progress.

        Raises ModelError if the model cannot be loaded. A second call replaces the model.
        """
        ...

    def self_test(self) -> None:
        """Compute known results. Raises SelfTestFailed if they are wrong on this machine."""
        ...

    def admit(self, prompt: Prompt) -> bool:
        """Add a prompt to the batch. Return False if the batch is full; the front then retries later."""
        ...

    def step(self) -> list[Token]:
        """Run one iteration and return the generated tokens. A sequence stays in the batch until it has
        `max_tokens` tokens or is cancelled.
        """
        ...

    def cancel(self, sequence: int) -> None:
        """Remove a sequence from the batch. An unknown id is ignored."""
        ...

    def idle(self) -> None:
        """Keep the engine's other ranks alive. The front calls this at least once a second if there is no
        sequence.
        """
        ...

    def usage(self) -> Usage:
        """Return the current use of the engine's resources."""
        ...

    def close(self) -> None:
        """Release the engine's resources at the end of the process."""
        ...
