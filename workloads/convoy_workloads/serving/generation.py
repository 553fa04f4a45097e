"""One continuation of a prompt: its text, its end, and its times. Only the compute thread changes it."""

from __future__ import annotations

from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.protocol import Decoder, Prompt, Token, Tokenizer
from convoy_workloads.serving.work_item import LENGTH, STOP, Delta, Sink, WorkItem


class Generation(WorkItem):
    """One continuation of a prompt."""

    __slots__ = ("_decoder", "_held", "_stop", "_tokenizer", "generated", "prompt")

    def __init__(
        self,
        prompt: Prompt,
        tokenizer: Tokenizer,
        stop: tuple[str, ...],
        deadline: float,
        sink: tuple[int, Sink],
    ) -> None:
        super().__init__(deadline, sink)
        self.prompt = prompt
        self.generated = 0
        self._tokenizer = tokenizer
        self._decoder: Decoder = tokenizer.decoder()
        self._stop = stop
        self._held = ""
        """Text that is not sent yet, because it may be the beginning of a stop string."""

    @property
    def payload(self) -> Prompt:
        """Return the prompt."""
        return self.prompt

    @property
    def prompt_tokens(self) -> int:
        """Return the number of tokens of the prompt."""
        return len(self.prompt.tokens)

    def accept(self, token: Token) -> Delta | None:
        """Add a token. Return the delta to send; None if the token completes no text."""
        self.generated += 1
        if token.reused is not None:
            self.reused = token.reused
        if token.token in self._tokenizer.ends:
            return self._end(STOP, self._held + self._decoder.flush())
        text, found = self._match(self._held + self._decoder.feed(token.token))
        tokens = (token,) if self.prompt.sampling.logprobs is not None else ()
        if found:
            return self._end(STOP, text, tokens)
        if self.generated >= self.prompt.sampling.max_tokens:
            rest, found = self._match(self._held + self._decoder.flush())
            return self._end(STOP if found else LENGTH, text + rest + self._held, tokens)
        return Delta(text, tokens) if text or tokens else None

    def measure(self, metrics: Metrics, now: float) -> None:
        """Record the token that `accept` has added at the monotonic time `now`."""
        if self.first_at:
            metrics.next_token(now - self.last_at)
        else:
            self.first_at = now
            metrics.first_token(now - self.submitted_at)
        self.last_at = now

    def end(self, reason: str, message: str = "") -> Delta:
        """End the continuation. Return its last delta."""
        return self._end(reason, message=message)

    def _end(self, reason: str, text: str = "", tokens: tuple[Token, ...] = (), message: str = "") -> Delta:
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
