from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from convoy_crds.params import params_error, schema_error
from convoy_workloads.engines.gpt import data, expert_rows
from convoy_workloads.engines.gpt.engine import HELD_OUT_SEED
from convoy_workloads.engines.gpt.model import GPT, VOCABULARY
from convoy_workloads.engines.gpt.params import Params
from convoy_workloads.engines.gpt.schedule import learning_rate


def test_the_parameter_schema_rejects_unknown_parameters() -> None:
    schema = Params.model_json_schema()
    assert schema_error(schema) is None
    assert params_error(schema, {"steps": 3}) is None
    assert params_error(schema, {"stepz": 3}) is not None
    assert all("description" in entry for entry in schema["properties"].values())


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValidationError, match="must be a multiple of heads=5"):
        Params(width=64, heads=5)


def test_the_learning_rate_rises_then_falls_to_a_tenth() -> None:
    params = Params(steps=100, warmup=10, learning_rate=1.0)
    rates = [learning_rate(step, params) for step in range(1, 101)]
    assert rates[9] == max(rates) == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(60):
        (tmp_path / f"module{number}.py").write_text(f"# file {number}\n" * 40)
    return tmp_path


def test_the_corpus_depends_only_on_the_files(folder: Path) -> None:
    one, other = data.load(10**6, folder), data.load(10**6, folder)
    assert one.train.tobytes() == other.train.tobytes()
    assert one.held_out.tobytes() == other.held_out.tobytes()


def test_held_out_files_are_not_in_the_training_set(folder: Path) -> None:
    corpus = data.load(10**6, folder)
    train, held_out = (set(part.tobytes().splitlines()) for part in (corpus.train, corpus.held_out))
    assert len(train - {b""}) + len(held_out - {b""}) == 60
    assert not train & held_out - {b""}


def test_the_corpus_respects_the_size_limit(folder: Path) -> None:
    corpus = data.load(20_000, folder)
    assert len(corpus.train) + len(corpus.held_out) <= 20_000 + 60


def test_an_image_without_sources_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(data.DataError, match="lacks the sources"):
        data.load(10**6, tmp_path)


def test_the_standard_library_provides_training_and_held_out_text() -> None:
    corpus = data.load(2_000_000)
    assert len(corpus.train) > 5 * len(corpus.held_out) > 50_000


def test_a_batch_is_a_pure_function_and_its_targets_are_the_next_bytes() -> None:
    text = np.arange(4096, dtype=np.int64).astype(np.uint8)
    inputs, targets = data.batch(text, 1, 7, 0, 4, 16)
    again, _ = data.batch(text, 1, 7, 0, 4, 16)
    assert torch.equal(inputs, again)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    others = [
        data.batch(text, *key, 4, 16)[0] for key in ((2, 7, 0), (1, 8, 0), (1, 7, 1), (HELD_OUT_SEED, 7, 0))
    ]
    assert not any(torch.equal(inputs, other) for other in others)


def test_the_model_sees_no_future_tokens() -> None:
    torch.manual_seed(0)
    model = GPT(context=16, layers=2, width=32, heads=4).eval()
    tokens = torch.randint(0, VOCABULARY, (1, 16))
    changed = tokens.clone()
    changed[0, 10] = (changed[0, 10] + 1) % VOCABULARY
    before, after = model(tokens), model(changed)
    assert torch.allclose(before[:, :10], after[:, :10], atol=1e-6)
    assert not torch.allclose(before[:, 10:], after[:, 10:], atol=1e-6)


def test_a_fresh_model_guesses_uniformly_and_learns_one_batch_by_heart() -> None:
    torch.manual_seed(0)
    model = GPT(context=16, layers=2, width=32, heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = torch.randint(0, VOCABULARY, (4, 17))
    losses = []
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(np.log(VOCABULARY), abs=0.3)
    assert losses[-1] < 0.5


def test_text_generation_is_reproducible() -> None:
    torch.manual_seed(0)
    model = GPT(context=8, layers=1, width=16, heads=2)
    texts = [model.write(b"def ", 20, torch.Generator().manual_seed(4)) for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 20


def test_the_rows_of_the_experts_have_the_skew_of_each_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_rows, "SIZES", (4,))
    monkeypatch.setattr(expert_rows, "HELD_OUT", 1)
    rows = expert_rows.figures(steps=1, seeds=1).rows()
    busiest = [row["value"] for row in rows if "busiest" in row["metric"]]
    assert len(busiest) == 2 and len(rows) == 6
    assert all(1 <= value <= 4 for value in busiest)
