"""CA-SGD against plain SGD, written here from its definition, on ranks that are threads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from convoy_workloads.comm.collectives import Collectives, Traffic
from convoy_workloads.comm.triangle import BlockTriangle
from convoy_workloads.engines.casgd.ablation import TOLERANCE, S, final_loss, least_loss
from convoy_workloads.engines.casgd.data import batch, columns_of, synth
from convoy_workloads.optim.block_size import CANDIDATES, Costs, choose, message_bytes
from convoy_workloads.optim.casgd import CASGD, CASGDOptions, Diverged, GlmDataError
from convoy_workloads.optim.gram import batch_by_batch, from_whole_matrix, gram_into
from convoy_workloads.optim.losses import LOSSES as FUNCTIONS
from convoy_workloads.optim.losses import LossName
from convoy_workloads.optim.places import PLACES
from convoy_workloads.optim.precision import FP32, FP64, MIXED, Precision, product_into

from ..gloo_threads import run_ranks

ROWS, COLUMNS, SIZE, ITERATIONS, LR, L2 = 96, 11, 4, 50, 0.05, 0.3
LOSSES: list[LossName] = ["logistic", "linear", "poisson"]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def rows_of(iteration: int) -> Tensor:
    return batch(7, iteration, ROWS, SIZE)


def plain_sgd(loss: LossName) -> Tensor:
    """Return the weights of SGD with all columns in one place."""
    problem = synth(loss, ROWS, COLUMNS - 1, 3)
    weights = torch.zeros(COLUMNS, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=LR, weight_decay=L2)
    for iteration in range(ITERATIONS):
        features, targets = (one[rows_of(iteration)] for one in (problem.features, problem.targets))
        margins = features @ weights
        values = {
            "logistic": torch.nn.functional.binary_cross_entropy_with_logits(margins, targets),
            "linear": 0.5 * torch.nn.functional.mse_loss(margins, targets),
            "poisson": torch.nn.functional.poisson_nll_loss(margins, targets),
        }
        optimizer.zero_grad()
        values[loss].backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return weights.detach()


def distributed(
    loss: LossName, s: int, world: int, order: Tensor | None = None, precision: Precision = FP64
) -> tuple[Tensor, list[Traffic]]:
    """Train on ranks. Return the weights in the columns' own order, and each rank's traffic."""
    problem = synth(loss, ROWS, COLUMNS - 1, 3)
    order = torch.arange(COLUMNS) if order is None else order

    def rank_main(collectives: Collectives) -> tuple[Tensor, Traffic]:
        mine = order[columns_of(collectives.rank, world, COLUMNS, "contiguous")]
        options = CASGDOptions(loss=loss, lr=LR, l2=L2, batch=SIZE, s=s, precision=precision)
        own = problem.features[:, mine]
        optimizer = CASGD(own, problem.targets, options, collectives=collectives)
        for iteration in range(ITERATIONS):
            optimizer.step(rows_of(iteration))
        return optimizer.weights, collectives.traffic

    found = run_ranks(world, rank_main)
    weights = torch.empty(COLUMNS, dtype=precision.weight)
    weights[order] = torch.cat([one for one, _ in found])
    return weights, [traffic for _, traffic in found]


@pytest.mark.parametrize("loss", LOSSES)
def test_every_s_ends_with_the_weights_of_sgd(loss: LossName) -> None:
    expected = plain_sgd(loss)
    assert expected.abs().max() > 0.05
    for s in (1, 2, 3, 8, 32, 50, 64):
        weights, traffic = distributed(loss, s, 2)
        assert (weights - expected).abs().max() <= 1e-12, f"s={s}"
        full, rest = divmod(ITERATIONS, s)
        expected_bytes = full * message_bytes(s, SIZE, 8) + (message_bytes(rest, SIZE, 8) if rest else 0)
        for one in traffic:
            assert one.calls == math.ceil(ITERATIONS / s)
            assert one.payload_bytes == expected_bytes


def test_averages_of_local_sgd_are_not_sgd() -> None:
    """The negative control: who averages weights every s iterations does not get SGD's weights."""
    problem = synth("linear", ROWS, COLUMNS - 1, 3)
    halves = []
    for rank in range(2):
        weights = torch.zeros(COLUMNS, dtype=torch.float64)
        for iteration in range(ITERATIONS):
            rows = rows_of(iteration)[rank::2]
            residual = problem.features[rows] @ weights - problem.targets[rows]
            weights = (1 - LR * L2) * weights - LR / len(rows) * problem.features[rows].t() @ residual
        halves.append(weights)
    assert (torch.stack(halves).mean(0) - plain_sgd("linear")).abs().max() > 1e-6


@pytest.mark.parametrize("device", DEVICES)
def test_each_device_ends_with_the_weights_of_sgd(device: str) -> None:
    problem = synth("logistic", ROWS, COLUMNS - 1, 3)
    features, targets = problem.features.to(device), problem.targets.to(device)
    expected = plain_sgd("logistic")
    for s in (1, 3, 8):
        options = CASGDOptions(loss="logistic", lr=LR, l2=L2, batch=SIZE, s=s, precision=FP64)
        optimizer = CASGD(features, targets, options)
        for iteration in range(ITERATIONS):
            optimizer.step(rows_of(iteration))
        assert (optimizer.weights.cpu() - expected).abs().max() <= 1e-12, f"s={s}"
        assert optimizer.gram_seconds > 0 or s == 1


@pytest.mark.parametrize("device", DEVICES)
def test_products_of_bf16_are_added_in_fp32(device: str) -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(rows, 4096).to(torch.bfloat16) for rows in (5, 7))
    flat = torch.full((35,), math.nan, device=device)
    product_into(flat.view(5, 7), left.to(device), right.to(device).t(), torch.float32)
    exact = left.double() @ right.double().t()
    assert (flat.cpu().view(5, 7) - exact).abs().max() < 1e-3, "sums in bf16 would be off by more"
    assert (flat.cpu().view(5, 7).bfloat16() - exact).abs().max() > 1e-2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", [gram_into, from_whole_matrix, batch_by_batch])
def test_the_gram_matrix_is_exact_both_at_once_and_batch_by_batch(way: Any, device: str) -> None:
    torch.manual_seed(0)
    layout = BlockTriangle([3, 1, 4, 2])
    inputs = torch.randn(layout.rows, 50, dtype=torch.float64)
    flat = torch.full((layout.elements + 5,), math.nan, dtype=torch.float64, device=device)
    way(flat, inputs.to(device), layout, torch.float64)
    exact = inputs @ inputs.t()
    for block in range(1, 4):
        rows = slice(layout.starts[block], layout.starts[block + 1])
        expected = exact[rows, : layout.starts[block]]
        assert torch.allclose(layout.row(flat, block).cpu(), expected, rtol=0, atol=1e-12)
    assert flat[layout.elements :].isnan().all(), "the margins are the caller's"


@pytest.mark.parametrize("device", DEVICES)
def test_a_choice_on_any_device_is_a_candidate(device: str) -> None:
    for precision in (FP32, MIXED):
        assert (
            choose(torch.randn(64, 10, device=device), 4, precision, Collectives(torch.clone)) in CANDIDATES
        )


def test_the_spread_of_the_columns_does_not_change_the_weights() -> None:
    expected = plain_sgd("logistic")
    for seed, world in ((1, 2), (2, 3)):
        order = torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(seed))
        weights, _ = distributed("logistic", 5, world, order)
        assert (weights - expected).abs().max() <= 1e-12


def test_each_iteration_has_its_own_learning_rate_and_size() -> None:
    problem = synth("linear", ROWS, COLUMNS - 1, 3)

    def train(s: int) -> Tensor:
        optimizer = CASGD(
            problem.features,
            problem.targets,
            CASGDOptions(loss="linear", lr=LR, l2=L2, batch=SIZE, s=s, precision=FP64),
        )
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        for iteration in range(20):
            optimizer.step(rows_of(iteration)[: 1 + iteration % SIZE])
            scheduler.step()
        return optimizer.weights

    assert (train(8) - train(1)).abs().max() <= 1e-12
    assert not torch.equal(train(1), plain_sgd("linear"))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_recipe_keeps_the_loss_within_half_a_percent(loss: LossName) -> None:
    expected = final_loss(loss, FP32, 1)
    for precision in (FP32, MIXED):
        assert abs(final_loss(loss, precision, S) / expected - 1) < TOLERANCE


def test_the_least_loss_is_that_of_the_best_margins() -> None:
    targets = torch.tensor([0.0, 0.3, 1.0, 5.0], dtype=torch.float64)
    best = FUNCTIONS["poisson"].value(targets.clamp(min=1e-300).log(), targets).mean()
    assert least_loss("poisson", targets) == pytest.approx(float(best), abs=1e-12)


def test_a_recurrence_in_bf16_breaks_the_loss() -> None:
    """The negative control: if this loss were kept, the test above would be too weak."""
    broken = final_loss("linear", replace(FP32, recurrence=torch.bfloat16), S, signs=True)
    assert abs(broken / final_loss("linear", FP32, 1, signs=True) - 1) > TOLERANCE


@pytest.mark.parametrize("place", PLACES)
def test_each_of_the_nine_places_has_an_effect(place: str) -> None:
    found, expected = (
        distributed("linear", 5, 1, precision=one)[0].double()
        for one in (replace(FP32, **{place: torch.bfloat16}), FP32)
    )
    assert 0 < (found - expected).abs().max() < 0.1


def test_s_follows_from_the_costs() -> None:
    alpha, beta, gamma = 2e-4, 1e-9, 1e-10
    costs = Costs(alpha, beta, gamma)
    seconds = {s: costs.seconds(s, 16, 1000, 4) for s in (1, 8, 64)}
    assert seconds[1] == pytest.approx(alpha + beta * 64)
    assert seconds[8] == pytest.approx((alpha + beta * 4 * (28 * 256 + 128) + gamma * 28 * 256 * 1000) / 8)
    assert costs.best(16, 1000, 4) == 4
    assert Costs(alpha * 100, beta, gamma).best(16, 1000, 4) > 8, "latency asks for larger blocks"
    assert Costs(alpha, beta, gamma * 100).best(16, 1000, 4) == 1, "dear products ask for smaller ones"
    assert Costs(1, 0, 0).best(16, 1000, 4, most=12) == 12


def test_all_ranks_choose_the_same_s_and_the_measurement_is_no_traffic() -> None:
    features = torch.randn(64, 10)

    def rank_main(collectives: Collectives) -> int:
        own = features[:, columns_of(collectives.rank, 3, 10, "striped")]
        found = choose(own, 4, FP32, collectives)
        assert collectives.traffic.calls == 0
        return found

    assert len(set(run_ranks(3, rank_main))) == 1


def test_a_state_in_the_middle_of_a_block_goes_on_with_the_same_bits() -> None:
    problem = synth("poisson", ROWS, COLUMNS - 1, 3)

    def make(weights: Tensor) -> CASGD:
        options = CASGDOptions(loss="poisson", lr=LR, batch=SIZE, s=8)
        return CASGD(problem.features, problem.targets, options, weights=weights)

    alone, restored = make(torch.zeros(COLUMNS)), make(torch.zeros(COLUMNS))
    for iteration in range(13):
        alone.step(rows_of(iteration))
    restored.load_state_dict(alone.state_dict())
    restored.param_groups[0]["params"][0].copy_(alone.param_groups[0]["params"][0])
    for optimizer in (alone, restored):
        for iteration in range(13, 20):
            optimizer.step(rows_of(iteration))
    assert torch.equal(alone.weights, restored.weights)


def test_unusable_data_and_settings_are_named() -> None:
    features, targets = torch.randn(8, 3), torch.zeros(8)

    def make(**changed: object) -> CASGD:
        given: dict[str, object] = {"loss": "logistic", "lr": 0.1, "batch": 4, "s": 2, **changed}
        data = [given.pop("features", features), given.pop("targets", targets)]
        weights = given.pop("weights", None)
        return CASGD(*data, CASGDOptions(**given), weights=weights)  # type: ignore[arg-type]

    for changed, words in (
        ({"s": 0}, "s: 0 is not between"),
        ({"batch": 0}, "batch: 0"),
        ({"lr": 2.0, "l2": 0.5}, "lr x l2 below 1"),
        ({"loss": "hinge"}, "'hinge' is not one of"),
        ({"weights": torch.zeros(4)}, "do not fit"),
    ):
        with pytest.raises(ValueError, match=words):
            make(**changed)
    for changed, words in (
        ({"features": torch.zeros(8, 0)}, "at least one each"),
        ({"features": torch.full((8, 3), float("nan"))}, "not finite"),
        ({"targets": torch.zeros(7)}, r"\[7\] for 8 rows"),
        ({"targets": torch.full((8,), 2.0)}, "2.0 in row 0, but the loss logistic needs 0 or 1"),
        ({"targets": -torch.ones(8), "loss": "poisson"}, "0 or more"),
    ):
        with pytest.raises(GlmDataError, match=words):
            make(**changed)
    with pytest.raises(ValueError, match="is not a list of row numbers"):
        make().step(torch.zeros(0, dtype=torch.long))
    with pytest.raises(IndexError):
        make(s=1).step(torch.tensor([8]))


@pytest.mark.parametrize(
    "bad",
    [
        {"features": torch.full((8, 1), float("nan"))},
        {"features": torch.zeros(8, 0)},
        {"features": torch.zeros(9, 1), "targets": torch.zeros(9)},
    ],
    ids=["not finite", "no columns", "other rows"],
)
@pytest.mark.parametrize("s", [2, "auto"])
def test_bad_data_of_one_rank_stop_all_ranks(bad: dict[str, Tensor], s: Any) -> None:
    def rank_main(collectives: Collectives) -> int:
        given = bad if collectives.rank == 1 else {}
        features, targets = given.get("features", torch.ones(8, 1)), given.get("targets", torch.zeros(8))
        options = CASGDOptions(loss="linear", lr=0.1, batch=4, s=s)
        with pytest.raises(GlmDataError):
            CASGD(features, targets, options, collectives=collectives)
        return collectives.traffic.calls

    assert run_ranks(3, rank_main) == [0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "target", "words"),
    [({"s": 3}, 0.0, "s: rank 1"), ({"lr": 0.2}, 0.0, "lr: rank 1"), ({}, 1.0, "targets: rank 1")],
    ids=["s", "lr", "targets"],
)
def test_ranks_that_differ_in_more_than_columns_are_an_error_on_all(
    changed: dict[str, Any], target: float, words: str
) -> None:
    def rank_main(collectives: Collectives) -> None:
        last = collectives.rank == 1
        options = CASGDOptions(
            **{"loss": "linear", "lr": 0.1, "batch": 4, "s": 2, **(changed if last else {})}
        )
        targets = torch.full((8,), target if last else 0.0)
        with pytest.raises(GlmDataError, match=words):
            CASGD(torch.ones(8, 1), targets, options, collectives=collectives)

    run_ranks(2, rank_main)


def test_a_schedule_may_set_a_learning_rate_of_0_but_not_below() -> None:
    options = CASGDOptions(loss="linear", lr=0.1, batch=4, s=1)
    optimizer = CASGD(torch.ones(8, 1), torch.ones(8), options)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step(torch.arange(4))
    assert optimizer.weights.tolist() == [0.0]
    optimizer.param_groups[0]["lr"] = -0.1
    with pytest.raises(ValueError, match=r"lr: -0\.1"):
        optimizer.step(torch.arange(4))


def test_an_iteration_that_fails_is_not_lost() -> None:
    options = CASGDOptions(loss="linear", lr=0.1, batch=4, s=8, precision=FP64)
    optimizer = CASGD(torch.ones(8, 1).double(), torch.ones(8).double(), options)
    optimizer.step(torch.arange(4))
    with pytest.raises(IndexError):
        optimizer.step(torch.tensor([8]))
    with pytest.raises(IndexError):
        optimizer.step(torch.tensor([-1]))
    assert float(optimizer.weights[0]) == pytest.approx(0.1), "the iteration before the wrong one counts"

    def fail(tensor: Tensor) -> None:
        raise RuntimeError("a lost rank")

    optimizer.step(torch.arange(4))
    whole = optimizer.collectives
    optimizer.collectives = Collectives(fail, 0, 2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a lost rank"):
            optimizer.flush()
    optimizer.collectives = whole
    assert float(optimizer.weights[0]) == pytest.approx(0.19)


def test_a_state_names_no_device() -> None:
    optimizer = CASGD(torch.ones(8, 1), torch.ones(8), CASGDOptions(loss="linear", lr=0.1, batch=4, s=8))
    optimizer.step(torch.arange(4))
    state = optimizer.state_dict()
    assert state["state"][0]["rows"].device.type == "cpu"
    state["state"][0]["rows"] = state["state"][0]["rows"].float()
    optimizer.load_state_dict(state)
    assert optimizer._pending[0][0].dtype == torch.long


def test_a_training_that_diverges_is_an_error() -> None:
    optimizer = CASGD(
        torch.ones(8, 1),
        torch.full((8,), 1e30),
        CASGDOptions(loss="linear", lr=1e9, batch=4, s=1),
    )
    with pytest.raises(Diverged, match="lower learning rate"):
        for _ in range(3):
            optimizer.step(torch.arange(4))
