"""The tokenizer of a model in the form of Hugging Face: the file `tokenizer.json`, read by the library
tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convoy_crds.shown import shown
from convoy_workloads.serving.protocol import Decoder, ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

FILE = "tokenizer.json"
END_FILES = ("generation_config.json", "config.json")
"""Files that may name the tokens that end a text; the first has priority."""
_WINDOW = 6
"""Tokens before a new one that may change its text, such as a space at the start of a word."""
_INCOMPLETE = "\ufffd"
_MOST_HELD = 16
"""Tokens after which a character that is still incomplete is invalid. A character has at most 4 bytes."""


class FileTokenizer:
    """The tokenizer of a model."""

    def __init__(self, library: Library, vocabulary: int, ends: frozenset[int]) -> None:
        """`vocabulary`: number of tokens of the model, which may be more than the tokenizer has."""
        self.vocabulary = vocabulary
        self.ends = ends
        self._library = library

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with the tokens that the model expects around it."""
        return list(self._library.encode(text).ids)

    def decoder(self) -> Decoder:
        """Return the decoder for a new sequence."""
        return FileDecoder(self._library)

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token's text."""
        text: str = self._library.decode([token], skip_special_tokens=False)
        return text.encode()

    def render_chat(self, messages: Sequence[tuple[str, str]]) -> str:
        """Return a transcript that ends where the assistant continues. The model's own template is a program
        in another language, which this engine does not run.
        """
        return "".join(f"{role}: {text}\n" for role, text in messages) + "assistant: "


class FileDecoder:
    """The state of decoding one sequence. A token's text may depend on the tokens before it, and a character
    may need several tokens.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._before: list[int] = []
        """Tokens whose text was returned, as far as they may change the next."""
        self._held: list[int] = []
        """Tokens whose text was not returned yet."""

    def feed(self, token: int) -> str:
        """Return the text that the token completes."""
        self._held.append(token)
        text = self._text()
        if text.endswith(_INCOMPLETE) and len(self._held) < _MOST_HELD:
            return ""
        return self._release(text)

    def flush(self) -> str:
        """Return the text of the tokens that completed no character."""
        return self._release(self._text())

    def _text(self) -> str:
        prefix = self._library.decode(self._before)
        whole: str = self._library.decode(self._before + self._held)
        return whole[len(prefix) :]

    def _release(self, text: str) -> str:
        self._before = (self._before + self._held)[-_WINDOW:]
        self._held = []
        return text


def read(folder: Path, vocabulary: int) -> FileTokenizer:
    """Return the tokenizer in a folder. Raises ModelError if it cannot be used."""
    file = folder / FILE
    try:
        from tokenizers import Tokenizer as Library  # noqa: PLC0415
    except ImportError as error:
        raise ModelError(
            f"{file} needs the library tokenizers, which is not installed: pip install tokenizers"
        ) from error
    try:
        library = Library.from_file(str(file))
    except Exception as error:  # The library raises plain exceptions.
        raise ModelError(f"{file} is no valid tokenizer: {error}") from error
    if (count := library.get_vocab_size(with_added_tokens=True)) > vocabulary:
        raise ModelError(f"{file} has {count} tokens, but the model has {vocabulary}: it is of another model")
    return FileTokenizer(library, vocabulary, _ends(folder, vocabulary))


def _ends(folder: Path, vocabulary: int) -> frozenset[int]:
    """Return the tokens that end a text, as the model's files name them. There may be several: Llama 3 has
    one for the end of a text, and others for the end of a message (vllm-project/vllm issue 4180).
    """
    for name in END_FILES:
        file = folder / name
        if not file.is_file():
            continue
        try:
            found: Any = json.loads(file.read_bytes()).get("eos_token_id")
        except (ValueError, AttributeError) as error:
            raise ModelError(f"{file} is no valid JSON object: {error}") from error
        if found is None or found == []:
            continue
        ends = found if isinstance(found, list) else [found]
        for one in ends:
            if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < vocabulary:
                raise ModelError(
                    f"{file}: eos_token_id: {shown(one)} is no token of the model, which has {vocabulary}"
                )
        return frozenset(ends)
    return frozenset()
