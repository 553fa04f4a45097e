"""Tests of the bits of continuations. They depend on the prompt, the sampling and the model alone: not on the
other sequences, the order, preemption, eviction, or what the cache holds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.lm import engine as lm
from convoy_workloads.engines.lm import weights
from convoy_workloads.engines.lm.engine import LanguageModel
from convoy_workloads.engines.lm.forward import Batch, Layout
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.serving.protocol import Prompt, Sampling, SelfTestFailed, Token

CONTEXT = 96
SHAPE = {"context": CONTEXT, "layers": 2, "width": 32, "heads": 2, "block": 4}
Bits = list[tuple[int, float, tuple[tuple[int, float], ...]]]


@cache
def model() -> GPT:
    """Return a model whose logits differ much, so that a wrong key or value changes a token."""
    torch.manual_seed(7)
    found = GPT(CONTEXT, 2, 32, 2)
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.dim() == 2:
                parameter.mul_(6)
    return found.eval()


def made(**params: object) -> LanguageModel:
    found = LanguageModel(Params.model_validate({**SHAPE, **params}), None, torch.device("cpu"))
    own = weights._own_model
    weights._own_model = lambda _: weights.Loaded(model(), "a test", {})
    try:
        found.load(lambda: None)
    finally:
        weights._own_model = own
    return found


def run(engine: LanguageModel, prompts: list[Prompt], arrivals: list[int] | None = None) -> dict[int, Bits]:
    """Return the continuation of each prompt. A prompt arrives at its iteration in `arrivals`."""
    found: dict[int, Bits] = {one.id: [] for one in prompts}
    waiting = sorted(zip(arrivals or [0] * len(prompts), prompts, strict=True), key=lambda one: one[0])
    iteration = 0
    left = len(prompts)
    while left:
        while waiting and waiting[0][0] <= iteration and engine.admit(waiting[0][1]):
            waiting.pop(0)
        for token in engine.step():
            mine = found[token.sequence]
            mine.append(bits(token))
            prompt = next(one for one in prompts if one.id == token.sequence)
            if len(mine) == prompt.sampling.max_tokens:
                engine.cancel(prompt.id)
                left -= 1
        iteration += 1
        assert iteration < 20_000
    return found


def bits(token: Token) -> tuple[int, float, tuple[tuple[int, float], ...]]:
    return token.token, token.logprob, token.alternatives


@cache
def alone(tokens: tuple[int, ...], sampling: Sampling, rows: int) -> Bits:
    """Return the continuation of a prompt that is computed alone, with a fresh and ample cache."""
    engine = made(rows=rows, max_sequences=1, prefix_reuse=False)
    return run(engine, [Prompt(0, tokens, sampling)])[0]


SAMPLINGS = st.builds(
    Sampling,
    max_tokens=st.integers(1, 24),
    seed=st.integers(0, 3),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    top_p=st.sampled_from([1.0, 0.9]),
    top_k=st.sampled_from([0, 5]),
    logprobs=st.just(2),
)
STEM = tuple(range(40, 72))
PROMPTS = st.one_of(
    st.lists(st.integers(0, 255), min_size=1, max_size=40).map(tuple),
    # Prompts with the same beginning share blocks.
    st.tuples(st.integers(1, 32), st.lists(st.integers(0, 3), max_size=6)).map(
        lambda one: (*STEM[: one[0]], *one[1])
    ),
).filter(bool)


@given(st.data())
@settings(max_examples=cases(25), deadline=None)
def test_a_continuation_does_not_depend_on_anything_beside_it(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([4, 16]), "rows")
    number = data.draw(st.integers(1, 7), "sequences")
    prompts = [Prompt(one, data.draw(PROMPTS), data.draw(SAMPLINGS)) for one in range(number)]
    arrivals = [data.draw(st.integers(0, 20)) for _ in prompts]
    engine = made(
        rows=rows,
        max_sequences=data.draw(st.integers(1, 4), "max_sequences"),
        # With 24 blocks, one sequence of a full context fits: the others must give their blocks back.
        kv_tokens=data.draw(st.sampled_from([CONTEXT, 2 * CONTEXT, 4096]), "kv_tokens"),
        prefix_reuse=data.draw(st.booleans(), "reuse"),
    )
    found = run(engine, prompts, arrivals)
    for one in prompts:
        assert found[one.id] == alone(one.tokens, one.sampling, rows)


def test_preempted_and_reused_sequences_occur_in_these_tests() -> None:
    engine = made(rows=16, max_sequences=4, kv_tokens=CONTEXT)
    prompts = [Prompt(one, (*STEM, one), Sampling(40, one, logprobs=1)) for one in range(4)]
    found = run(engine, prompts)
    assert engine._scheduler.preemptions > 0
    assert found == {one.id: alone(one.tokens, one.sampling, 16) for one in prompts}
    again = Prompt(9, (*STEM, 0), Sampling(2, 0))
    assert engine.admit(again)
    assert next(token.reused for token in engine.step()) == len(STEM)
    engine.cancel(9)
    assert engine.usage().cache_share == 0 and engine.usage().running == 0


def test_a_follow_up_reuses_the_generated_tokens_with_the_same_bits() -> None:
    engine = made(rows=16, max_sequences=2)
    first = Prompt(0, STEM, Sampling(30, 5, logprobs=1))
    text = tuple(token for token, *_ in run(engine, [first])[0])
    follow_up = Prompt(1, (*STEM, *text, 1, 2), Sampling(10, 6, logprobs=1))
    assert engine.admit(follow_up)
    tokens: list[Token] = []
    while len(tokens) < 10:
        tokens += engine.step()
    assert tokens[0].reused == 60  # All full blocks of 4 tokens of the 61 computed tokens.
    assert [bits(one) for one in tokens] == alone(follow_up.tokens, follow_up.sampling, 16)


def test_a_cancelled_sequence_leaves_no_trace() -> None:
    engine = made(rows=16, max_sequences=4)
    kept = Prompt(1, STEM, Sampling(12, 3, logprobs=1))
    for number in (0, 1, 2):
        assert engine.admit(kept if number == 1 else Prompt(number, (*STEM[:9], number), Sampling(40, 1)))
    found: Bits = []
    for iteration in range(200):
        if iteration == 3:
            engine.cancel(0)
        if iteration == 5:
            engine.cancel(2)
            engine.cancel(99)
        found += [bits(one) for one in engine.step() if one.sequence == 1]
        if len(found) == 12:
            break
    assert found == alone(kept.tokens, kept.sampling, 16)


def test_greedy_tokens_are_those_of_the_plain_model() -> None:
    tokens = list(STEM)
    for token, *_ in alone(STEM, Sampling(20, 0, temperature=0.0), 16):
        with torch.no_grad():
            logits = model()(torch.tensor([tokens]))[0, -1]
        # Two tokens with nearly equal logits may be exchanged.
        assert logits[token] >= logits.max() - 1e-4
        tokens.append(token)


def test_seeds_give_different_texts_and_each_seed_always_the_same() -> None:
    texts = [tuple(one[0] for one in alone(STEM, Sampling(20, seed), 16)) for seed in range(4)]
    assert len(set(texts)) == 4


def test_the_self_test_accepts_this_machine() -> None:
    engine = made(rows=16)
    engine.self_test()
    assert not engine._loaded.paged._keys.any()


@pytest.mark.parametrize("part", ["mask", "product"])
def test_the_self_test_finds_a_broken_forward_pass(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made(rows=16)
    if part == "mask":
        whole = Layout.batch

        def unmasked(*arguments: Any) -> Batch:
            found = whole(*arguments)
            return replace(found, mask=torch.zeros_like(found.mask))

        monkeypatch.setattr(Layout, "batch", unmasked)
    else:
        monkeypatch.setattr(torch, "bmm", lambda a, b, out=None: torch.matmul(a, b, out=out) * 1.01)
    with pytest.raises(SelfTestFailed, match="differs from the plain one"):
        engine.self_test()


def test_a_row_that_influences_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made(rows=16)
    blocks = engine._loaded.paged.blocks

    def leaky(x_RC: torch.Tensor, batch: object) -> torch.Tensor:
        found = blocks(x_RC, batch)  # type: ignore[arg-type]
        return found + found.mean(0) * 1e-3

    monkeypatch.setattr(engine._loaded.paged, "blocks", leaky)
    with pytest.raises(SelfTestFailed, match="other bits beside other sequences"):
        engine.self_test()


def test_the_context_is_limited_by_the_cache() -> None:
    engine = LanguageModel(Params.model_validate({**SHAPE, "kv_tokens": 40}), None, torch.device("cpu"))
    assert engine.load(lambda: None).context == 40
    assert lm.limits(Params(queue=3)).queue == 3


def test_a_model_of_an_odd_shape_works() -> None:
    params = Params.model_validate(
        {"context": 37, "layers": 1, "width": 24, "heads": 3, "block": 5, "rows": 7, "max_sequences": 3}
    )
    engine = LanguageModel(params, None, torch.device("cpu"))
    assert engine.load(lambda: None).context == 37
    prompts = [Prompt(one, tuple(range(one, one + 9)), Sampling(28, one, logprobs=1)) for one in range(3)]
    found = run(engine, prompts)
    for one in prompts:
        assert run(engine, [one])[one.id] == found[one.id]
