"""Prefix LoRA: the client's training, the server's rules, and the messages between them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convoy_workloads.federated.adapters import PrefixLoRA
from convoy_workloads.federated.aggregation import RULES, Rule, aggregate, contributors
from convoy_workloads.federated.levels import Levels, prefix
from convoy_workloads.federated.rounds import REASONS, Outcome, Round, collect
from convoy_workloads.federated.update import MAX_HEADER, Update, UpdateError, from_bytes

LEVELS = Levels((2, 4, 8))
INPUTS, OUTPUTS = 6, 5


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.Tanh(), nn.Linear(7, OUTPUTS))


def random_update(client: str, rank: int, samples: int = 10, seed: int = 0, number: int = 1) -> Update:
    generator = torch.Generator().manual_seed(seed)
    factors = {
        name: (
            torch.randn(rank, inputs, generator=generator),
            torch.randn(outputs, rank, generator=generator),
        )
        for name, inputs, outputs in (("0", INPUTS, 7), ("2", 7, OUTPUTS))
    }
    return Update(client, number, rank, samples, factors)


SERVER = random_update("server", LEVELS.largest, seed=99).factors


def equal(one: object, other: object) -> bool:
    pairs = [(one[name], other[name]) for name in SERVER]  # type: ignore[index]
    return all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in pairs)


def trained(rank: int) -> tuple[nn.Sequential, PrefixLoRA]:
    made = model()
    client = PrefixLoRA(made, rank, LEVELS)
    client.load(SERVER)
    return made, client


def loss_of(made: nn.Module) -> Tensor:
    given = torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(5))
    out: Tensor = made(given).square().mean()
    return out


def test_a_truncated_module_computes_with_the_prefix_alone() -> None:
    made, client = trained(8)
    given = torch.randn(3, INPUTS)
    for rank in LEVELS.ranks:
        plain = model()
        hidden = given
        for number in (0, 2):
            a, b = prefix(SERVER, rank)[str(number)]
            hidden = plain[number](hidden) + hidden @ a.t() @ b.t()
            hidden = hidden.tanh() if number == 0 else hidden
        with client.truncated(rank):
            assert torch.allclose(made(given), hidden, atol=1e-5)
    with pytest.raises(ValueError, match="rank: 3 is not one of 2, 4, 8"), client.truncated(3):
        pass


def test_the_nested_gradient_is_the_mean_of_the_truncated_ones() -> None:
    made, client = trained(8)
    parameters = list(client.parameters())
    nested = torch.autograd.grad(client.nested(lambda: loss_of(made)), parameters)
    total = [torch.zeros_like(one) for one in parameters]
    for rank in LEVELS.ranks:
        with client.truncated(rank):
            for kept, gradient in zip(total, torch.autograd.grad(loss_of(made), parameters), strict=True):
                kept.add_(gradient / 3)
    for one, other in zip(nested, total, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    plain = torch.autograd.grad(loss_of(made), parameters)
    assert not torch.allclose(plain[0], nested[0], atol=1e-6), "the levels must matter"


def test_a_client_trains_its_adapter_and_nothing_else() -> None:
    made, client = trained(4)
    before = {name: one.clone() for name, one in made.state_dict().items()}
    optimizer = torch.optim.Adam(client.parameters(), lr=0.1)
    client.nested(lambda: loss_of(made)).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    changed = {name for name, one in made.state_dict().items() if not torch.equal(one, before[name])}
    assert changed == {f"{layer}.lora_{factor}.weight" for layer in "02" for factor in "AB"}


def test_a_client_of_a_small_rank_never_changes_the_other_dimensions() -> None:
    made = aggregate("segment", LEVELS, SERVER, [random_update("a", 2), random_update("b", 4, seed=1)])
    for name, (a, b) in made.items():
        assert torch.equal(a[4:], SERVER[name][0][4:]) and torch.equal(b[:, 4:], SERVER[name][1][:, 4:])
        assert not torch.equal(a[:4], SERVER[name][0][:4])


def test_equal_ranks_give_the_bits_of_fedavg() -> None:
    updates = [random_update(f"c{number}", 8, samples=3 + number, seed=number) for number in range(5)]
    expected = {}
    for name in SERVER:
        pair = []
        for side in (0, 1):
            total = torch.zeros_like(SERVER[name][side])
            for update in updates:
                total += (update.samples / 25) * update.factors[name][side]
            pair.append(total)
        expected[name] = tuple(pair)
    for rule in ("segment", "zeropad", "replicate", "fedavg"):
        assert equal(aggregate(rule, LEVELS, SERVER, updates), expected), rule


def test_many_small_clients_do_not_dilute_the_last_segment() -> None:
    large = [random_update("x", 8, seed=1), random_update("y", 8, samples=30, seed=2)]
    small = [random_update(f"s{number}", 2, samples=1000, seed=10 + number) for number in range(10)]
    for rule, diluted in (("segment", False), ("segment-product", False), ("zeropad", True)):
        alone, crowd = (aggregate(rule, LEVELS, SERVER, one) for one in (large, [*large, *small]))  # type: ignore[arg-type]
        same = all(torch.equal(alone[name][0][2:], crowd[name][0][2:]) for name in alone)
        assert same is not diluted, "the negative control: zeros count"


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_the_clients_does_not_change_a_bit(rule: Rule) -> None:
    ranks = (8, 8, 8) if rule == "fedavg" else (2, 4, 8)
    updates = [random_update(f"c{number}", rank, 5 * rank, number) for number, rank in enumerate(ranks)]
    first, *others = [aggregate(rule, LEVELS, SERVER, order) for order in permutations(updates)]
    assert all(equal(first, other) for other in others)
    assert equal(aggregate(rule, LEVELS, SERVER, []), SERVER), "a round without clients changes nothing"


def test_a_mean_of_products_is_not_a_product_of_means() -> None:
    updates = [random_update("a", 8, seed=1), random_update("b", 8, seed=2)]
    made, averaged = (aggregate(rule, LEVELS, SERVER, updates) for rule in ("product", "fedavg"))  # type: ignore[arg-type]
    for name in SERVER:
        products = [one.factors[name][1] @ one.factors[name][0] for one in updates]
        mean = sum(products) / 2
        # A layer of 7 x 6 or 5 x 7 has at most six dimensions, so eight are enough for the whole mean.
        assert torch.allclose(made[name][1] @ made[name][0], mean, atol=1e-4)
        assert not torch.allclose(averaged[name][1] @ averaged[name][0], mean, atol=1e-2)


def test_means_of_products_stay_within_their_segment() -> None:
    large, small = random_update("b", 8, seed=2), random_update("a", 2, seed=1)
    made = aggregate("segment-product", LEVELS, SERVER, [large, small])
    for name in SERVER:
        for start, end in LEVELS.segments():
            having = [one for one in (small, large) if one.rank >= end]
            products = [
                one.factors[name][1][:, start:end] @ one.factors[name][0][start:end] for one in having
            ]
            found = made[name][1][:, start:end] @ made[name][0][start:end]
            left, values, right = torch.linalg.svd(torch.stack(products).mean(0), full_matrices=False)
            best = left[:, : end - start] * values[: end - start] @ right[: end - start]
            assert torch.allclose(found, best, atol=1e-4)
    single = Levels((8,))
    one, other = (aggregate(rule, single, SERVER, [large]) for rule in ("segment-product", "product"))  # type: ignore[arg-type]
    assert equal(one, other)


def test_other_rules_fill_or_cut_what_a_client_lacks() -> None:
    small, large = random_update("a", 2, 10, seed=1), random_update("b", 8, 10, seed=2)
    name = "0"
    replicated = aggregate("replicate", LEVELS, SERVER, [small, large])[name][0]
    assert torch.allclose(replicated[2:], large.factors[name][0][2:], atol=1e-6)
    padded = aggregate("zeropad", LEVELS, SERVER, [small, large])[name][0]
    assert torch.allclose(padded[2:], large.factors[name][0][2:] / 2, atol=1e-6)
    cut = aggregate("truncate", LEVELS, SERVER, [small, large])[name][0]
    assert torch.equal(cut[2:], SERVER[name][0][2:])
    assert torch.equal(cut[:2], padded[:2])
    with pytest.raises(ValueError, match="fedavg needs clients that all have the largest rank"):
        aggregate("fedavg", LEVELS, SERVER, [small, large])


def test_contributors_of_each_segment() -> None:
    updates = [random_update(f"c{number}", rank) for number, rank in enumerate((2, 2, 4, 8))]
    assert contributors(LEVELS, updates) == {2: 4, 4: 2, 8: 1}


def test_a_message_keeps_every_bit_and_has_the_bytes_of_the_prefix() -> None:
    sizes = {}
    for rank in LEVELS.ranks:
        update = random_update("client", rank, seed=rank)
        message = update.to_bytes()
        found = from_bytes(message)
        assert (found.client, found.round, found.rank, found.samples) == ("client", 1, rank, 10)
        assert all(
            torch.equal(one, other)
            for name in SERVER
            for one, other in zip(found.factors[name], update.factors[name], strict=True)
        )
        sizes[rank] = len(message.partition(b"\n")[2])
    assert sizes == {rank: 4 * rank * (INPUTS + 7 + 7 + OUTPUTS) for rank in LEVELS.ranks}


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"{", b"[]\n", b"{}\n", b"null\n", b'{"shapes": {"0": [[-1, 2], [2, 2]]}}\n'),
        *(b"x" * (MAX_HEADER + 2), b"[" * 60_000 + b"\n"),
        random_update("a", 2).to_bytes().replace(b'"samples": 10', b'"samples": Infinity'),
    ],
    ids=lambda message: repr(message[:20]),
)
def test_a_message_that_is_none_is_an_error(message: bytes) -> None:
    with pytest.raises(UpdateError):
        from_bytes(message)


def test_a_header_cannot_claim_memory_that_the_message_does_not_have() -> None:
    head, _, body = random_update("a", 2).to_bytes().partition(b"\n")
    claimed = json.loads(head)
    claimed["shapes"]["0"] = [[10**9, 10**9], [1, 1]]
    with pytest.raises(UpdateError, match="bytes of adapters, expected"):
        from_bytes(json.dumps(claimed).encode() + b"\n" + body)


def test_a_client_is_told_if_no_server_would_read_its_message() -> None:
    pair = torch.zeros(2, 1), torch.zeros(1, 2)
    layers = {f"layers.{number}.mlp.experts.down_proj": pair for number in range(1500)}
    message = Update("a", 1, 2, 3, layers).to_bytes()
    assert message.index(b"\n") > 1 << 16 and len(from_bytes(message).factors) == len(layers)
    with pytest.raises(UpdateError, match="header for 1 layers"):
        Update("a", 1, 2, 3, {"x" * MAX_HEADER: pair}).to_bytes()


def gather(messages: list[bytes], clients: dict[str, int], quorum: float = 0.6) -> Outcome:
    """Collect messages, one each second of a clock that no test waits for."""
    now = [0.0]

    def receive(seconds: float) -> bytes | None:
        assert seconds > 0
        now[0] += 1.0
        return messages.pop(0) if messages else None

    asked = Round(
        number=1,
        clients=clients,
        levels=LEVELS,
        shapes=SERVER,
        quorum=quorum,
        timeout=10.0,
        samples=dict.fromkeys(clients, 10),
    )
    return collect(receive, asked, lambda: now[0])


def test_unusable_messages_are_counted_with_their_reason() -> None:
    good = random_update("good", 4)
    bad = {
        "unknown client": replace(good, client="nobody"),
        "other round": replace(good, client="late", round=0),
        "duplicate": good,
        "unknown rank": replace(random_update("grown", 4), rank=3),
        "wrong shape": replace(good, client="short", factors=prefix(good.factors, 3)),
        "no samples": replace(good, client="empty", samples=0),
        "too many samples": replace(good, client="greedy", samples=11),
        "not finite": replace(
            random_update("nan", 4, seed=3),
            factors={**good.factors, "0": (torch.full((4, INPUTS), math.nan), good.factors["0"][1])},
        ),
    }
    clients = dict.fromkeys(("good", "late", "grown", "short", "empty", "greedy", "nan", "silent"), 4)
    messages = [good.to_bytes(), b"noise", *(one.to_bytes() for one in bad.values())]
    outcome = gather(messages, clients, quorum=0.1)
    assert {reason for _, reason in outcome.quarantined} == set(REASONS)
    assert len(outcome.quarantined) == len(REASONS)
    assert [one.client for one in outcome.updates] == ["good"] and outcome.quorate
    assert outcome.vanished == ["empty", "greedy", "grown", "late", "nan", "short", "silent"]


def test_a_client_with_another_rank_than_agreed_is_not_used() -> None:
    outcome = gather([random_update("a", 8).to_bytes()], {"a": 4})
    assert outcome.quarantined == [("a", "unknown rank")]


def test_a_late_message_of_the_last_round_does_not_replace_the_one_of_this_round() -> None:
    updates = [random_update("a", 2, number=0), random_update("b", 2), random_update("a", 2)]
    outcome = gather([one.to_bytes() for one in updates], {"a": 2, "b": 2})
    assert [one.client for one in outcome.updates] == ["b", "a"]
    assert outcome.quarantined == [("a", "other round")] and outcome.vanished == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clients": {}}, "clients: a round needs at least one"),
        ({"clients": {"a": 3}}, "clients: 'a' has rank 3"),
        ({"quorum": 1.5}, "quorum: 1.5 is not from 0 to 1"),
        ({"timeout": 0.0}, "timeout: 0.0 is not positive"),
        ({"samples": {"b": 10}}, "samples: no limit for the client 'a'"),
        ({"shapes": prefix(SERVER, 4)}, "shapes: 0 has shapes"),
    ],
)
def test_a_round_that_no_messages_can_complete_is_an_error(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"number": 1, "clients": {"a": 2}, "levels": LEVELS, "shapes": SERVER}
    with pytest.raises(ValueError, match=message):
        Round(**{**given, **changed})


def test_a_round_ends_at_its_deadline_and_needs_a_quorum() -> None:
    clients = dict.fromkeys((f"c{number}" for number in range(20)), 2)
    messages = [random_update(f"c{number}", 2).to_bytes() for number in range(20)]
    outcome = gather(list(messages), clients, quorum=0.5)
    assert len(outcome.updates) == 10 and outcome.quorate, "a message a second, for ten seconds"
    assert not gather(list(messages), clients, quorum=0.55).quorate
    assert gather([], clients).vanished == sorted(clients)


class PeftLayer(nn.Module):
    """A linear layer as the package peft wraps it (peft 0.21, tuners/lora/layer.py)."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        self.scaling = {"default": 32 / rank}

    def forward(self, x: Tensor) -> Tensor:
        low = self.lora_B["default"](self.lora_A["default"](x))
        out: Tensor = self.base_layer(x) + low * self.scaling["default"]
        return out


def test_modules_of_peft_are_used_as_they_are_and_get_a_scale_without_the_rank() -> None:
    plain, client = trained(4)
    wrapped = model()
    for number in (0, 2):
        wrapped[number] = PeftLayer(wrapped[number], 4)  # type: ignore[arg-type]
    other = PrefixLoRA(wrapped, 4, LEVELS)
    other.load(SERVER)
    given = torch.randn(3, INPUTS)
    assert torch.allclose(plain(given), wrapped(given), atol=1e-6)
    with client.truncated(2), other.truncated(2):
        assert torch.allclose(plain(given), wrapped(given), atol=1e-6)
    assert client.factors().keys() == other.factors().keys()
    with pytest.raises(ValueError, match="rank: 8, but the adapter of 0 has rank 4"):
        PrefixLoRA(wrapped, 8, LEVELS)


def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match="are not ascending"):
        Levels((4, 2))
    with pytest.raises(ValueError, match="rank: 3 is not one of"):
        PrefixLoRA(model(), 3, LEVELS)
    with pytest.raises(ValueError, match="no linear layer of the module ends in head"):
        PrefixLoRA(model(), 2, LEVELS, targets=("head",))
    _, client = trained(8)
    with pytest.raises(ValueError, match="too few dimensions"):
        client.load(prefix(SERVER, 4))
    with pytest.raises(ValueError, match=r"layers \['0'\]"):
        client.load({"0": SERVER["0"]})
