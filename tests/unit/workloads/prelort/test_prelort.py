"""Tests of the engine prelort: its tasks, its rounds and its scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from convoy_workloads.engines.prelort import rouge
from convoy_workloads.engines.prelort.federation import Federation, task_of
from convoy_workloads.engines.prelort.generation import generated_score
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.engines.prelort.tasks import dirichlet_parts, pretrain
from convoy_workloads.engines.prelort.text import prose
from convoy_workloads.federated.rounds import Outcome

SMALL: dict[str, Any] = {"clients": [2, 4, 4, 2], "ranks": [2, 4], "local_steps": 2, "pretrain_steps": 20}


def federation(clock: Any = lambda: 0.0, **given: Any) -> Federation:
    params = Params.model_validate({**SMALL, **given})
    task = task_of(params)
    base = task.base()
    pretrain(base, task, params.pretrain_steps)
    return Federation(params, task, base, clock)


def play(made: Federation, number: int) -> Outcome:
    clients = [int(name.removeprefix("client-")) for name in made.chosen(number)]
    messages = [made.train_client(client, number) for client in clients]
    return made.aggregate(number, [one for one in messages if one is not None])


def test_a_round_trains_and_its_bytes_are_those_of_the_prefixes() -> None:
    made = federation()
    before = [one.clone() for pair in made.adapter.factors.values() for one in pair]
    outcome = play(made, 1)
    assert len(outcome.updates) == 4 and not outcome.quarantined and not outcome.vanished
    assert any(not torch.equal(one, other) for one, other in zip(before, made.adapter.buffers(), strict=True))
    per_rank = 4 * sum(a.shape[1] + b.shape[0] for a, b in made.adapter.factors.values())
    assert made.sent_bytes(1) == per_rank * (2 + 4 + 4 + 2)
    assert outcome.received_bytes > made.sent_bytes(1), "each message also has a header"


def test_the_ranks_of_the_job_play_the_same_federation() -> None:
    one, other = federation(), federation()
    messages = [other.train_client(client, 1) for client in (3, 1, 2, 0)]
    play(one, 1)
    other.aggregate(1, [message for message in messages if message])
    assert all(map(torch.equal, one.adapter.buffers(), other.adapter.buffers()))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("vanish", ""), ("nan", "not finite"), ("unknown-rank", "unknown rank"), ("other-round", "other round")],
)
def test_a_faulty_client_is_counted_and_the_round_goes_on(kind: str, reason: str) -> None:
    made = federation(faults=[{"client": 1, "round": 1, "kind": kind}])
    outcome = play(made, 1)
    assert outcome.quarantined == ([("client-0001", reason)] if reason else [])
    assert outcome.vanished == ["client-0001"] and len(outcome.updates) == 3 and outcome.quorate
    assert all(bool(torch.isfinite(one).all()) for one in made.adapter.buffers())


def test_a_round_without_a_quorum_changes_nothing() -> None:
    faults = [{"client": client, "round": 1, "kind": "vanish"} for client in (0, 1)]
    made = federation(faults=faults)
    before = [one.clone() for one in made.adapter.buffers()]
    assert not play(made, 1).quorate
    assert all(map(torch.equal, before, made.adapter.buffers()))
    assert play(made, 2).quorate


def test_a_client_that_is_too_slow_gives_up() -> None:
    times = iter([0.0, 10.0, 61.0])
    assert federation(clock=lambda: next(times)).train_client(0, 1) is None


def test_clients_of_a_round_are_drawn_from_the_seed() -> None:
    made = federation(clients_per_round=2)
    assert made.chosen(3) == made.chosen(3)
    assert {len(made.chosen(number)) for number in range(9)} == {2}
    assert len({tuple(made.chosen(number)) for number in range(9)}) > 1


def test_the_parts_of_the_clients_are_disjoint_and_nobody_has_none() -> None:
    labels = np.arange(40) % 4
    parts = dirichlet_parts(labels, 12, 0.05, 1)
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    assert min(map(len, parts)) >= 1


def test_the_text_has_two_kinds_and_held_out_topics() -> None:
    train, held_out = prose()
    assert len(train) > 5 * len(held_out) > 100_000
    made = federation(task="text", pretrain_steps=1, local_steps=1, batch=4)
    assert len(play(made, 1).updates) == 4
    with made.model(2) as model:
        assert 0 <= generated_score(model, held_out, prompts=2) <= 1
    assert made.evaluate(4).loss < 6


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        # Values of rouge_score.rouge_scorer.RougeScorer(["rougeL"]) of the package rouge-score 0.1.2.
        ("the cat sat on the mat", "the cat was on a mat", 0.6666666666666666),
        ("police killed the gunman", "the gunman police killed", 0.5),
        ("a b c", "d e", 0.0),
        ("Same, words!", "same words", 1.0),
        ("", "anything", 0.0),
    ],
)
def test_rouge_l_is_that_of_the_package(reference: str, candidate: str, expected: float) -> None:
    assert rouge.rouge_l(reference, candidate) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranks": [4, 2]}, "are not ascending"),
        ({"clients": [3]}, "rank 3 is not one of ranks"),
        ({"clients_per_round": 9}, "9 of 8 clients"),
        ({"aggregation": "fedavg"}, "all have the largest of ranks"),
        ({"faults": [{"client": 8, "round": 1, "kind": "nan"}]}, "there is no client 8"),
        ({"quorum": 0}, "greater than 0"),
    ],
)
def test_invalid_parameters_are_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Params.model_validate(given)
