"""Tests of the bits of packed models: a row has the same bits beside all other rows, so that the number of
rows of an iteration may change. They use this machine's fastest kernel.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.workloads.tilefuse.quantised_models import SIZES, engine, model, save
from torch.nn import functional as F

from convoy_workloads.engines.lm.forward import Layout, PagedModel
from convoy_workloads.engines.lm.scheduler import Row, Sequence
from convoy_workloads.engines.tilefuse import packed_model
from convoy_workloads.engines.tilefuse.engine import QuantisedLanguageModel
from convoy_workloads.engines.tilefuse.packed_model import PackedTransformer
from convoy_workloads.serving.protocol import Prompt, Sampling, SelfTestFailed

FAMILIES = ("gpt", "llama")
CASES = tuple((family, dtype) for family in FAMILIES for dtype in ("bfloat16", "float32"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {family: save(model(family), root / family) for family in FAMILIES}


@cache
def loaded(folder: Path, dtype: str, rows: int) -> QuantisedLanguageModel:
    return engine(folder, dtype=dtype, rows=rows, prefix_reuse=False, quant={"isa": "auto"})


def packed(folder: Path, dtype: str) -> PackedTransformer:
    found = loaded(folder, dtype, 16)._loaded.paged.model
    assert isinstance(found, PackedTransformer)
    return found


def generate(made: QuantisedLanguageModel, prompts: list[Prompt]) -> dict[int, list[tuple[int, float]]]:
    found: dict[int, list[tuple[int, float]]] = {one.id: [] for one in prompts}
    waiting = list(prompts)
    for _ in range(1000):
        while waiting and made.admit(waiting[0]):
            waiting.pop(0)
        for token in made.step():
            mine = found[token.sequence]
            mine.append((token.token, token.logprob))
            prompt = next(one for one in prompts if one.id == token.sequence)
            if len(mine) == prompt.sampling.max_tokens:
                made.cancel(prompt.id)
        if all(len(found[one.id]) == one.sampling.max_tokens for one in prompts):
            return found
    raise AssertionError("the prompts did not end")


@pytest.mark.parametrize(("family", "dtype"), CASES)
def test_a_continuation_has_the_same_bits_with_any_number_of_rows(
    family: str, dtype: str, folders: dict[str, Path]
) -> None:
    prompts = [
        Prompt(number, tuple(range(number, number + 3 + 5 * number)), Sampling(8, number, logprobs=1))
        for number in range(4)
    ]
    beside = generate(loaded(folders[family], dtype, 16), prompts)
    for rows in (4, 16):
        for prompt in prompts:
            alone = generate(loaded(folders[family], dtype, rows), [prompt])
            assert alone[prompt.id] == beside[prompt.id]
    assert len({tuple(one) for one in beside.values()}) == 4


@pytest.mark.parametrize(("family", "dtype"), CASES)
@given(data=st.data())
@settings(max_examples=cases(6), deadline=None)
def test_the_bits_of_a_row_depend_on_no_other_row(
    family: str, dtype: str, folders: dict[str, Path], data: st.DataObject
) -> None:
    found = packed(folders[family], dtype)
    assert found.row_exact
    block = data.draw(st.sampled_from([3, 4, 16]))
    paged = PagedModel(found, range(2), Layout(16, block, 48), 100)
    ends = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 100)))
    sequences, next_block = [], 1
    for number, end in enumerate(ends):
        tokens = torch.randint(0, 256, (end,), generator=generator).tolist()
        own = -(-end // block)
        sequences.append(
            Sequence(
                Prompt(number, tuple(tokens), Sampling(1, 0)),
                tokens,
                list(range(next_block, next_block + own)),
            )
        )
        next_block += own
    expected = [_logits(paged, [Row(one, at, True) for at in range(len(one.tokens))]) for one in sequences]
    paged.clear()
    # All sequences advance side by side, so that the number of rows shrinks with each that has ended.
    for at in range(max(ends)):
        here = [number for number, end in enumerate(ends) if at < end]
        together = _logits(paged, [Row(sequences[number], at, True) for number in here])
        for number, row in zip(here, together, strict=True):
            assert torch.equal(expected[number][at], row)


def _logits(paged: PagedModel, rows: list[Row]) -> torch.Tensor:
    """Return the logits of rows, of which an iteration computes as many as fit."""
    found = []
    for start in range(0, len(rows), paged.layout.rows):
        some = rows[start : start + paged.layout.rows]
        batch = paged.layout.batch(paged.layout.integers(some)[: len(some)], paged.device)
        found.append(paged.logits(paged.blocks(paged.embed(batch), batch)))
    return torch.cat(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(data=st.data())
@settings(max_examples=cases(20), deadline=None)
def test_the_operations_of_torch_are_exact_by_row(dtype: torch.dtype, data: st.DataObject) -> None:
    """These are the operations between the packed products. They run on one thread, as in the engine."""
    torch.set_num_threads(1)
    width = data.draw(st.sampled_from([16, 24, 48, 64, 100, 192, 320]))
    feed = data.draw(st.sampled_from([64, 128, 320]))
    rows, start = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 7))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    x = torch.randn((16, width), generator=generator).to(dtype)
    wide = torch.randn((16, 2 * feed), generator=generator).to(dtype)
    weight, bias = torch.randn((2, width), generator=generator)
    groups, heads, head = data.draw(st.sampled_from([(1, 4, 16), (4, 1, 8), (2, 2, 64), (8, 1, 128)]))
    query = torch.randn((heads, 16, groups, head), generator=generator)
    keys = torch.randn((heads, 16, data.draw(st.sampled_from([16, 63, 64])), head), generator=generator)

    def attend(some: slice) -> torch.Tensor:
        q = query[:, some].reshape(-1, groups, head)
        k = keys[:, some].reshape(q.shape[0], -1, head)
        scores = torch.bmm(q, k.transpose(1, 2))
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return (torch.bmm(weights, k) / weights.sum(-1, keepdim=True)).view(heads, -1, groups, head)

    def gated(some: slice) -> torch.Tensor:
        gate, up = wide[some].chunk(2, dim=-1)
        return F.silu(gate) * up

    some = slice(start, start + rows)
    assert torch.equal(attend(slice(16))[:, some], attend(some))
    for operation in (
        lambda rows: F.layer_norm(x[rows].clone(), (width,), weight, bias),
        lambda rows: torch.rsqrt(x[rows].clone().float().square().mean(-1, keepdim=True) + 1e-5),
        lambda rows: F.gelu(wide[rows].clone()),
        gated,
    ):
        assert torch.equal(operation(slice(16))[some], operation(some))


def test_the_head_is_the_same_in_slices(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found = packed(folders["llama"], "float32")
    x = torch.randn((5, 64))
    whole = found.logits(x)
    monkeypatch.setattr(packed_model, "HEAD_SLICE", 64 * 4 * 100)
    sliced = PackedTransformer(found.model)
    assert len(sliced._slices) == 3
    assert torch.allclose(sliced.logits(x), whole, atol=1e-5)
    assert torch.equal(sliced.logits(x)[3], sliced.logits(x[3:4])[0])


def test_the_self_test_finds_rows_that_depend_on_others(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = loaded(folders["gpt"], "float32", 16)
    made.self_test()
    product = PackedTransformer.after_attention

    def leaky(self: PackedTransformer, layer: int, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        found = product(self, layer, x, mixed)
        return found + found.mean(0) * 1e-4 * (len(found) > 2)

    monkeypatch.setattr(PackedTransformer, "after_attention", leaky)
    with pytest.raises(SelfTestFailed):
        made.self_test()


def test_a_feed_forward_network_of_an_odd_width_computes_all_rows() -> None:
    made = engine(None, **{**SIZES, "architecture": "llama", "feed": 96, "dtype": "float32", "rows": 8})
    assert not made._loaded.paged.model.row_exact
    made.self_test()


def test_one_sequence_alone_computes_one_row(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, counts = loaded(folders["llama"], "bfloat16", 16), []
    blocks = PagedModel.blocks

    def counted(self: PagedModel, x: torch.Tensor, batch: object) -> torch.Tensor:
        counts.append(len(x))
        return blocks(self, x, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(PagedModel, "blocks", counted)
    generate(made, [Prompt(0, (1, 2, 3), Sampling(3, 0))])
    assert counts == [3, 1, 1]
