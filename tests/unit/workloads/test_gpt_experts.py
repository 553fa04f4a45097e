"""Tests of gpt's mixture of experts."""

from __future__ import annotations

import hashlib

import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional as F

from convoy_workloads.engines.gpt.engine import imbalance, penalty
from convoy_workloads.engines.gpt.experts import Experts
from convoy_workloads.engines.gpt.model import GPT, VOCABULARY, Shape
from convoy_workloads.engines.gpt.params import Params
from convoy_workloads.runtime import DataError


def experts(top_k: int = 2, count: int = 16, width: int = 8) -> Experts:
    torch.manual_seed(0)
    made = Experts(width, count, top_k)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def test_each_token_is_computed_by_its_most_probable_experts() -> None:
    made, x = experts(), torch.randn(3, 5, 8)
    out = made(x).reshape(15, 8)
    for row, token in zip(out, x.reshape(15, 8), strict=True):
        odds = made.gate(token).softmax(-1)
        best = odds.argsort(descending=True)[:2]
        expected = torch.zeros(8)
        for number in best.tolist():
            hidden = F.gelu(token @ made.widen[number] + made.widen_bias[number])
            fed = hidden @ made.narrow[number] + made.narrow_bias[number]
            expected += odds[number] / odds[best].sum() * fed
        assert torch.allclose(row, expected, atol=1e-5)
    assert made.loads.sum() == 15 * 2


def test_skewed_routing_is_measured_and_penalised() -> None:
    made, x = experts(top_k=1), torch.ones(64, 8)
    with torch.no_grad():
        made.gate.weight.zero_()
        made.gate.weight[3] = 10.0
    made(x)
    assert made.imbalance == 16 and made.penalty.item() == pytest.approx(16, rel=1e-3)
    with torch.no_grad():
        made.gate.weight.zero_()
        made.gate.weight[:8] = 50 * torch.eye(8)
    made(torch.eye(8).repeat(4, 1))
    assert made.imbalance == 2 and made.loads[:8].tolist() == [4] * 8, "half of the experts, evenly"
    assert made.penalty.item() == pytest.approx(2, rel=1e-3)


def test_the_penalty_spreads_the_tokens() -> None:
    torch.manual_seed(1)
    found = []
    for weight in (0.0, 1.0):
        model = GPT(16, 1, 16, 2, experts=16, top_k=1)
        with torch.no_grad():
            model.expert_layers[0].gate.weight.mul_(100)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        tokens = torch.randint(0, VOCABULARY, (8, 17), generator=torch.Generator().manual_seed(0))
        for _ in range(25):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + weight * penalty(model)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        found.append(imbalance(model))
    assert found[1] < found[0], found


def test_every_parameter_has_a_gradient_even_of_experts_without_tokens() -> None:
    model = GPT(16, 2, 16, 2, experts=64, top_k=2)
    model(torch.randint(0, VOCABULARY, (1, 4))).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert min(layer.loads.min() for layer in model.expert_layers) == 0


def test_a_dense_model_has_the_same_weights_and_state_as_without_the_option() -> None:
    torch.manual_seed(0)
    model = GPT(8, 1, 16, 2)
    assert not model.expert_layers
    assert Shape(2).state_dict() == {"heads": 2}
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        total.update(name.encode())
        total.update(tensor.numpy().tobytes())
    assert total.hexdigest() == "8b74c2d586ac082d02dcc443dfbe7512b4da8bc9ca118302cb0502afb792c7a5"


def test_a_checkpoint_names_the_number_of_experts_of_a_token() -> None:
    saved = Shape(4, 2).state_dict()
    assert saved == {"heads": 4, "top_k": 2}
    Shape(4, 2).load_state_dict(saved)
    for other in (Shape(4), Shape(4, 1)):
        with pytest.raises(DataError, match=r"uses 2 experts .* params\.top_k"):
            other.load_state_dict(saved)


def test_a_token_cannot_use_more_experts_than_there_are() -> None:
    with pytest.raises(ValidationError, match="top_k: 4 is more than experts=2"):
        Params(experts=2, top_k=4)
    assert Params(top_k=4).experts == 0
