"""One continuation of a prompt: its text, its end, and its times. Only the compute thread changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_workloads.serving.protocol import Decoder, Prompt, Token, Tokenizer

STOP = "stop"
"""Finish reason: the model has ended the text, or a stop string has occurred."""
LENGTH = "length"
"""Finish reason: the continuation has the maximum number of tokens."""
CANCELLED = "cancelled"
"""Finish reason: the client has left, or an administrator has cancelled the request."""
DEADLINE = "deadline"
"""Finish reason: the request's deadline has passed."""
ERROR = "error"
"""Finish reason: the engine has failed."""


@dataclass(slots=True)
class Delta:
    """The part of a continuation that one iteration has added."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    """The new tokens, if the request wants their probabilities."""
    finish: str = ""
    """Reason of the end; empty if the continuation goes on."""
    message: str = ""
    """Cause of an end with the reason `ERROR` or `DEADLINE`."""
    generated: int = 0
    """Number of tokens so far. Only the last delta has it."""
    reused: int = 0
    """Number of tokens of the prompt that were in the cache. Only the last delta has it."""


Sink = Callable[[int, Delta], None]
"""A function that receives the number of a choice and its next delta, on the event loop."""


class Generation:
    """One continuation of a prompt."""

    __slots__ = (
        "_decoder",
        "_held",
        "_stop",
        "_tokenizer",
        "admitted_at",
        "choice",
        "deadline",
        "ended",
        "first_at",
        "generated",
        "last_at",
        "prompt",
        "reused",
        "sink",
        "submitted_at",
    )

    def __init__(
        self,
        prompt: Prompt,
        tokenizer: Tokenizer,
        stop: tuple[str, ...],
        deadline: float,
        sink: tuple[int, Sink],
    ) -> None:
        """`deadline`: monotonic time at which the continuation ends at the latest. `sink`: number of the
        choice, and the function that receives its deltas.
        """
        self.prompt = prompt
        self.deadline = deadline
        self.choice, self.sink = sink
        self.generated = 0
        self.reused = 0
        self.ended = False
        self.submitted_at = self.admitted_at = self.first_at = self.last_at = 0.0
        """Monotonic times in seconds; 0 before the event."""
        self._tokenizer = tokenizer
        self._decoder: Decoder = tokenizer.decoder()
        self._stop = stop
        self._held = ""
        """Text that is not sent yet, because it may be the beginning of a stop string."""

    def accept(self, token: Token) -> Delta | None:
        """Add a token. Return the delta to send; None if the token completes no text."""
        self.generated += 1
        if token.reused is not None:
            self.reused = token.reused
        if token.token == self._tokenizer.end:
            return self.end(STOP, self._held + self._decoder.flush())
        text, found = self._match(self._held + self._decoder.feed(token.token))
        tokens = (token,) if self.prompt.sampling.logprobs is not None else ()
        if found:
            return self.end(STOP, text, tokens=tokens)
        if self.generated >= self.prompt.sampling.max_tokens:
            rest, found = self._match(self._held + self._decoder.flush())
            return self.end(STOP if found else LENGTH, text + rest + self._held, tokens=tokens)
        return Delta(text, tokens) if text or tokens else None

    def end(self, reason: str, text: str = "", message: str = "", tokens: tuple[Token, ...] = ()) -> Delta:
        """End the continuation. Return its last delta."""
        self.ended = True
        self._held = ""
        return Delta(text, tokens, reason, message, self.generated, self.reused)

    def _match(self, text: str) -> tuple[str, bool]:
        """Return the part of `text` that may be sent, and True if a stop string occurs. Text that may be the
        beginning of a stop string is held back.
        """
        if not self._stop:
            return text, False
        ends = [at for one in self._stop if (at := text.find(one)) >= 0]
        if ends:
            self._held = ""
            return text[: min(ends)], True
        held = max(_overlap(text, one) for one in self._stop)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
