"""Tests of the tokenizer of a model in the form of Hugging Face. The library tokenizers makes the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_workloads.engines.lm import file_tokenizer, models
from convoy_workloads.engines.lm.file_tokenizer import FileTokenizer
from convoy_workloads.engines.lm.tokenizer import ByteTokenizer, ModelTokenizer
from convoy_workloads.serving.protocol import ModelError

tokenizers = pytest.importorskip("tokenizers")
TEXT = ["the quick brown fox jumps over the lazy dog", "naïve café, 日本語 and 🙂🙃", "the the then them"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tokenizer over bytes (BPE), as Llama 3 and Qwen have."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<end>"]
    )
    made.train_from_iterator(TEXT, trainer)
    found = tmp_path_factory.mktemp("tokenizer")
    made.save(str(found / "tokenizer.json"))
    (found / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 7]}))
    return found


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tokenizer over words with spaces in front, as Llama 2 has."""
    vocabulary = {"<unk>": 0, "▁the": 1, "▁fox": 2, "es": 3, ",": 4, "▁": 5}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    found = tmp_path_factory.mktemp("words")
    made.save(str(found / "tokenizer.json"))
    return found


@given(text=st.text(max_size=30))
@settings(max_examples=cases(50), deadline=None)
def test_the_parts_of_a_text_are_the_text(folder: Path, text: str) -> None:
    found = file_tokenizer.read(folder, 400)
    tokens = found.encode(text)
    decoder = found.decoder()
    parts = [decoder.feed(token) for token in tokens]
    assert "".join(parts) + decoder.flush() == text
    assert not any("\ufffd" in part for part in parts if "\ufffd" not in text)


def test_a_character_of_several_tokens_comes_whole(folder: Path) -> None:
    found = file_tokenizer.read(folder, 400)
    tokens = found.encode("é🦊")
    decoder = found.decoder()
    assert len(tokens) > 3 and [one for one in map(decoder.feed, tokens) if one] == ["é", "🦊"]
    decoder = found.decoder()
    cut = [decoder.feed(token) for token in tokens[:-1]]
    assert "".join(cut) == "é" and decoder.flush() == "\ufffd"


def test_the_space_in_front_of_a_word_is_kept(words: Path) -> None:
    decoder = file_tokenizer.read(words, 6).decoder()
    assert [decoder.feed(token) for token in (1, 2, 3, 4, 1)] == ["the", " fox", "es", ",", " the"]


def test_bytes_that_are_no_text_end_after_some_tokens(folder: Path) -> None:
    found = file_tokenizer.read(folder, 400)
    continuation = found.encode("é")[-1]
    decoder = found.decoder()
    parts = [decoder.feed(continuation) for _ in range(40)]
    assert any(parts)


def test_the_end_tokens_come_from_the_models_files(folder: Path, words: Path) -> None:
    found = models.tokenizer(folder, 400)
    assert isinstance(found, FileTokenizer) and (found.ends, found.vocabulary) == ({0, 7}, 400)
    assert models.tokenizer(words, 6).ends == frozenset()
    assert isinstance(models.tokenizer(None, 256), ByteTokenizer)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("generation_config.json", "[", "generation_config.json is no valid JSON object"),
        ("generation_config.json", '{"eos_token_id": 400}', "eos_token_id: 400 is no token of the model"),
        ("generation_config.json", '{"eos_token_id": [0, -1]}', "eos_token_id: -1 is no token of the model"),
        ("tokenizer.json", "{}", "tokenizer.json is no valid tokenizer"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    name: str, text: str, message: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=message):
        file_tokenizer.read(tmp_path, 400)


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"has \d+ tokens, but the model has 256: it is of another model"):
        file_tokenizer.read(folder, 256)


def test_an_engine_has_the_tokenizer_of_its_model(folder: Path) -> None:
    found = ModelTokenizer()
    assert (found.vocabulary, found.ends, found.encode("é")) == (256, frozenset(), [0xC3, 0xA9])
    found.current = file_tokenizer.read(folder, 400)
    assert (found.vocabulary, found.ends) == (400, {0, 7})
    assert found.bytes_of(found.encode("the")[0]) == b"the"
    assert found.render_chat([("user", "hi")]) == "user: hi\nassistant: "
    assert found.decoder().feed(found.encode("the")[0]) == "the"
