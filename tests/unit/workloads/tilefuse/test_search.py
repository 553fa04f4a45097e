"""Tests of the codes of groups and of the search for scales: the model computes the same, and its codes
become better.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.workloads.tilefuse.quantised_models import gpt, llama, model

from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.tokenizer import ByteTokenizer
from convoy_workloads.engines.tilefuse import calibration, groups, sequences
from convoy_workloads.engines.tilefuse.quantise import Request, quantise
from convoy_workloads.engines.tilefuse.search import Settings, search
from convoy_workloads.engines.tilefuse.structure import structure
from convoy_workloads.serving.protocol import ModelError

FAMILIES = pytest.mark.parametrize("family", ["gpt", "llama"])
TOKENS = torch.randint(0, 256, (4, 32), generator=torch.Generator().manual_seed(3))


@given(st.integers(0, 2**31), st.sampled_from([4, 8]), st.floats(-3, 3))
@settings(max_examples=cases(30), deadline=None)
def test_a_code_is_the_nearest(seed: int, bits: int, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn((16, 64), generator=generator) + shift
    found = groups.quantise("w", weight, bits, 32)
    scales = torch.from_numpy(found.scales).float().repeat_interleave(32, dim=1)
    error = (torch.from_numpy(found.dequantised()) - weight).abs()
    # Half a step, and the rounding of scale and zero point to their types.
    assert (error <= scales * (0.5 + 0.5 + 2**-10 * 2**bits)).all()
    assert float((error > scales * 0.51).float().mean()) < 0.1
    assert found.codes.max() < 2**bits


def test_groups_of_equal_weights_are_exact_or_zero() -> None:
    weight = torch.zeros((8, 64))
    weight[1] = 0.5
    found = groups.quantise("w", weight, 4, 32).dequantised()
    assert (found[0] == 0).all() and abs(found[1] - 0.5).max() < 1e-3


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (torch.full((8, 64), torch.nan), "tensor w has values that are not finite"),
        (
            torch.zeros(8, 96),
            r"tensor w has 96 inputs, which is no multiple of group_size=64: set group_size to 32",
        ),
        (torch.zeros(8, 50), "50 inputs, .* it cannot be quantised"),
        (torch.zeros(12, 64), "tensor w has 12 outputs: the file formats need a multiple of 8"),
    ],
)
def test_a_matrix_that_cannot_be_quantised_is_named(weight: torch.Tensor, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        groups.quantise("w", weight, 4, 64)


@FAMILIES
@torch.no_grad()
def test_the_scales_change_no_output(family: str) -> None:
    found = model(family)
    before = sequences.logits(found, TOKENS)
    outcomes, shrinks = search(found, structure(found), TOKENS, Settings(4, 32, clip=True), lambda _: None)
    after = sequences.logits(found, TOKENS)
    assert (after - before).abs().max() < 2e-4 * before.abs().max()
    assert [one.key for one in outcomes] == [one.key for one in structure(found).matrices]
    assert all(one.after <= one.before for one in outcomes)
    # The channels of these models differ in size, so that scales help.
    assert sum(one.alpha > 0 for one in outcomes) >= len(outcomes) / 2
    assert set(shrinks) == {one.key for one in outcomes}
    assert all(((one > 0) & (one <= 1)).all() for one in shrinks.values())


@FAMILIES
@torch.no_grad()
def test_the_search_beats_rounding_to_the_nearest_codes(family: str) -> None:
    exact = sequences.logits(model(family), TOKENS)
    errors = []
    for samples, clip in ((0, False), (8, False), (8, True)):
        found = model(family)
        wanted = Request("w4a16", 32, samples, clip, torch.float32)
        content, _ = quantise(found, ByteTokenizer(), wanted, lambda _: None)
        codes = {matrix.key: content.codes(matrix) for matrix in structure(found).matrices}
        for matrix in structure(found).matrices:
            matrix.module.weight.copy_(torch.from_numpy(codes[matrix.key].dequantised()))  # type: ignore[operator, union-attr]
        errors.append(float((sequences.logits(found, TOKENS) - exact).square().mean()))
    assert errors[1] < 0.9 * errors[0]
    assert errors[2] < 0.9 * errors[0]


@FAMILIES
def test_the_same_model_gives_the_same_codes(family: str) -> None:
    made = []
    for _ in range(2):
        found = model(family)
        content, outcomes = quantise(
            found, ByteTokenizer(), Request("w4a16", 64, 3, True, torch.bfloat16), lambda _: None
        )
        made.append((outcomes, [content.codes(one).codes.tobytes() for one in structure(found).matrices]))
    assert made[0] == made[1]


@FAMILIES
@torch.no_grad()
def test_whole_sequences_agree_with_the_models_own_pass(family: str) -> None:
    found = model(family)
    assert torch.allclose(sequences.logits(found, TOKENS), found.plain(TOKENS), atol=1e-4)


def test_a_part_with_nan_is_named_by_its_name_in_files() -> None:
    found = llama()
    with torch.no_grad():
        found.layers[1].qkv.weight[-1, 3] = torch.nan  # type: ignore[union-attr, index, operator]
    wanted = Request("w4a16", 32, 2, False, torch.float32)
    with pytest.raises(ModelError, match=r"tensor model\.layers\.1\.self_attn\.v_proj\.weight has values"):
        quantise(found, ByteTokenizer(), wanted, lambda _: None)


def test_calibration_and_measuring_use_different_text() -> None:
    one = calibration.calibration(ByteTokenizer(), 4, 48)
    assert one.shape == (4, 48)
    assert torch.equal(one, calibration.calibration(ByteTokenizer(), 4, 48))
    other = calibration.measuring(ByteTokenizer(), 4, 48)
    assert other.shape == (4, 49) and not torch.equal(one, other[:, :48])


def test_the_loss_is_that_of_the_training_engine() -> None:
    found = gpt()
    assert isinstance(found, GPTLayers)
    windows = torch.randint(0, 256, (9, 33), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = found.model(windows[:, :-1])
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    assert sequences.loss(found, windows) == pytest.approx(float(expected), rel=1e-5)
