"""The conversion between text and tokens. Each byte of the UTF-8 text is one token."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from convoy_workloads.engines.gpt.model import VOCABULARY
from convoy_workloads.serving.protocol import Decoder, Tokenizer


class ByteDecoder:
    """The state of decoding one sequence. Bytes that are no valid UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """Return the text that the token completes."""
        return self._decoder.decode(bytes((token,)))

    def flush(self) -> str:
        """Return U+FFFD if the last character is incomplete, else an empty text."""
        return self._decoder.decode(b"", final=True)


class ByteTokenizer:
    """The tokenizer of a model over bytes. It has no token that ends a text."""

    vocabulary = VOCABULARY
    ends: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text."""
        return list(text.encode("utf-8", "replace"))

    def decoder(self) -> Decoder:
        """Return the decoder for a new sequence."""
        return ByteDecoder()

    def bytes_of(self, token: int) -> bytes:
        """Return the byte that a token stands for."""
        return bytes((token,))

    def render_chat(self, messages: Sequence[tuple[str, str]]) -> str:
        """Return a transcript that ends where the assistant continues."""
        return "".join(f"{role}: {text}\n" for role, text in messages) + "assistant: "


class ModelTokenizer:
    """The tokenizer of an engine: that of the loaded model. Before the first load, each byte is a token."""

    def __init__(self) -> None:
        self.current: Tokenizer = ByteTokenizer()

    @property
    def vocabulary(self) -> int:
        """Return the number of tokens."""
        return self.current.vocabulary

    @property
    def ends(self) -> frozenset[int]:
        """Return the tokens that end a text; empty if the model has none."""
        return self.current.ends

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self.current.encode(text)

    def decoder(self) -> Decoder:
        """Return the decoder for a new sequence."""
        return self.current.decoder()

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""
        return self.current.bytes_of(token)

    def render_chat(self, messages: Sequence[tuple[str, str]]) -> str:
        """Return the prompt for a conversation."""
        return self.current.render_chat(messages)
