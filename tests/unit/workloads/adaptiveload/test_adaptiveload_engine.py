"""Tests of the engine adaptiveload: its model, its measured steps, its rows, and its simulation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.trial import Trial
from convoy_workloads.engines.adaptiveload import ENGINE, rows, simulated_rows
from convoy_workloads.engines.adaptiveload.bench import DEALT
from convoy_workloads.engines.adaptiveload.kernel_rows import kernel_figures
from convoy_workloads.engines.adaptiveload.memory import PeakGrowth
from convoy_workloads.engines.adaptiveload.model import DiT
from convoy_workloads.engines.adaptiveload.params import Params
from convoy_workloads.engines.adaptiveload.simulation import MeasuredCost, Setting, simulate
from convoy_workloads.engines.adaptiveload.training import (
    StepTimes,
    held_out_loss,
    loss_of,
    make_batches,
    train_step,
)
from convoy_workloads.engines.adaptiveload.videos import Videos, noised
from convoy_workloads.packing.step_cost import LinearQuadratic, Timing

SMALL = Params.model_validate(dict(ENGINE.small))
CPU = torch.device("cpu")


def model_of(**changed: Any) -> DiT:
    torch.manual_seed(0)
    found = DiT(SMALL.model_copy(update=changed))
    for one in found.parameters():  # a fresh model's gates are 0
        torch.nn.init.normal_(one, std=0.2)
    return found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory_tokens": 63}, "memory_tokens: no batch fits a video of 64 tokens"),
        ({"heads": 3}, "must be a multiple of 2 \\* heads=6"),
        ({"exponent": 0.9}, "exponent"),
        ({"buckets": []}, "buckets"),
    ],
)
def test_parameters_that_no_batch_satisfies_are_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Params.model_validate({**ENGINE.small, **changed})


def test_the_model_has_the_same_gradients_with_the_fused_operation() -> None:
    videos, found = torch.stack([Videos(9, [16], 4, 1)[one] for one in range(3)]), []
    for fused in (True, False):
        torch.manual_seed(1)
        model = model_of(fused=fused)
        loss_of(model, videos, (1,), CPU).backward()  # type: ignore[no-untyped-call]
        found.append(torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]))
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_a_video_and_its_noise_depend_on_their_numbers_alone() -> None:
    videos = Videos(10, [8, 16], 4, 7)
    assert [len(videos[one]) for one in range(4)] == [videos.tokens(one) for one in range(4)] == [8, 16] * 2
    assert torch.equal(videos[3], videos[3]) and not torch.equal(videos[1], videos[3])
    batch = torch.stack([videos[1], videos[3]])
    noisy, time, velocity = noised(batch, (1, 2))
    assert all(map(torch.equal, (noisy, time, velocity), noised(batch, (1, 2))))
    # The sample is where the noise ends: x = noisy - time * velocity.
    assert torch.allclose(noisy - time[:, None, None] * velocity, batch, atol=1e-5)


def test_a_step_on_one_rank_has_the_gradient_of_its_batch_and_records_its_time() -> None:
    model, batches, times = model_of(), make_batches(SMALL), StepTimes(0, 1)
    videos = next(iter(batches))
    loss = train_step(model, batches, videos, times, (1, 1, CPU))
    found = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    model.zero_grad()
    assert batches.info is not None
    expected = loss_of(model, videos, (1, 1, *batches.info.samples), CPU)
    expected.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(float(expected.detach()))
    grads = [one.grad for one in model.parameters() if one.grad is not None]
    assert all(torch.allclose(one, other) for one, other in zip(found, grads, strict=True))
    assert len(times.steps) == 1 and times.steps[0][0] > 0


MACHINE = LinearQuadratic(1e-6, 1e-9, 1e-3)
BUCKETS = (128, 512, 2048)
TIMINGS = [
    Timing(batch, one, MACHINE.seconds(batch, one))
    for one in BUCKETS
    for batch in sorted({1, 16_384 // one, 2048 // one})
]


def test_times_between_measured_batches_grow_in_a_line() -> None:
    cost = MeasuredCost(TIMINGS)
    for batch, tokens in ((1, 128), (3, 512), (20, 128), (5, 2048), (128, 128)):
        assert cost.seconds(batch, tokens) == pytest.approx(MACHINE.seconds(batch, tokens))


@pytest.mark.parametrize("batch", [1, 9])
def test_a_batch_beyond_the_measured_sizes_is_an_error(batch: int) -> None:
    cost = MeasuredCost([Timing(2, 8, 1.0), Timing(8, 8, 3.0)])
    with pytest.raises(ValueError, match=f"{batch} samples of 8 tokens: batches of 2 to 8 samples"):
        cost.seconds(batch, 8)


def test_all_simulated_batches_are_measured() -> None:
    timings = [
        Timing(batch, tokens, MACHINE.seconds(batch, tokens))
        for tokens in simulated_rows.BUCKETS
        for batch in simulated_rows.batches_to_measure(tokens)
    ]
    samples = list(simulated_rows.BUCKETS) * 100
    for setting in simulated_rows.SETTINGS.values():
        assert simulate(setting, timings, samples, 8, len(samples), 1).seconds_per_sample > 0


def test_a_measurement_leaves_threads_and_random_numbers_as_they_are() -> None:
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with simulated_rows.measuring():
            assert torch.get_num_threads() == 1
            torch.randn(3)
        assert torch.get_num_threads() == 2 and torch.equal(torch.random.get_rng_state(), before)
    finally:
        torch.set_num_threads(threads)


def test_a_small_peak_after_a_large_one_is_small() -> None:
    megabyte = 2**20

    def growth(size: int) -> int:
        peak = PeakGrowth()
        torch.ones(size * megabyte, dtype=torch.uint8)
        return peak.bytes()

    large, small = growth(96), growth(24)
    assert 90 * megabyte < large < 140 * megabyte
    assert 20 * megabyte < small < 60 * megabyte


def test_a_size_that_is_listed_twice_is_twice_as_frequent() -> None:
    videos = Videos(70, [16, 8, 8], 4, 1)
    sizes = [len(videos[one]) for one in range(6)]
    assert sizes == [8, 8, 16, 8, 8, 16]


def test_the_held_out_loss_is_of_other_videos_and_repeats() -> None:
    model = model_of()
    first = held_out_loss(model, SMALL, CPU)
    assert first == held_out_loss(model, SMALL, CPU) > 0
    assert first != held_out_loss(model, SMALL.model_copy(update={"samples": SMALL.samples + 4}), CPU)


def trial(busy: float, imbalance: float, **changed: Any) -> Trial:
    result = {"busy": busy, "least": 2.0, "imbalance": imbalance, "steps": 9, "loss": 0.5}
    return Trial(1.0, 1.0, {**result, "samples": "a", "tokens": 7, **changed})


def test_a_missed_target_of_two_ranks_is_a_row() -> None:
    found = Figures()
    trials = {name: [trial(3.0, 0.1)] * 5 for name in rows.VARIANTS}
    rows.add_measured(found, {**trials, DEALT: [trial(2.5, 0.02)] * 5})
    listed = {one["metric"]: one for one in found.rows()}
    gain = listed[
        "adaptiveload, 2 ranks: samples per second, adaptiveload, times better than equal-token batches"
    ]
    assert (gain["value"], gain["target"], gain["met"]) == (1.2, 1.5, False)
    assert listed["adaptiveload, 2 ranks: imbalance, adaptiveload"]["met"] is True
    assert listed["adaptiveload, 2 ranks: imbalance, equal tokens, sorted dealing"]["met"] is False
    assert all(one["met"] for name, one in listed.items() if name.startswith(("equality", "negative")))


def test_a_control_that_is_slower_than_its_equal_is_a_miss() -> None:
    found = Figures()
    trials = {name: [trial(3.0, 0.1)] * 5 for name in rows.VARIANTS}
    rows.add_measured(found, {**trials, rows.AGAIN: [trial(5.0, 0.1)] * 5})
    missed = [one["metric"] for one in found.rows() if one["met"] is False and "control" in one["metric"]]
    assert missed == ["negative control: equal-token batches again, gain over equal-token batches"]


def test_measured_cost_and_sorted_dealing_balance_the_ranks() -> None:
    samples = [BUCKETS[number % 3] for number in range(1500)]

    def run(**setting: Any) -> Any:
        return simulate(Setting(**setting), TIMINGS, samples, 8, 1500, 1)

    equal = run(rule="equal_tokens", memory_tokens=4096)
    sized = run(rule="measured", memory_tokens=16_384, compute_tokens=4096)
    dealt = run(rule="equal_tokens", memory_tokens=4096, sort=True)
    without = run(rule="paper", memory_tokens=4096, compute_tokens=65_536, exponent=2.0)
    assert sized.imbalance < 0.5 * equal.imbalance and dealt.imbalance < 0.2 * equal.imbalance
    assert sized.seconds_per_sample < equal.seconds_per_sample > dealt.seconds_per_sample
    # Equal limits: the compute limit has no effect.
    assert without.sizes == equal.sizes and without.imbalance == equal.imbalance


def test_the_rows_of_the_kernels_name_the_card() -> None:
    row: dict[str, Any] = {"shape": [8, 32768, 1536], "error": 3e-6}
    for name, seconds in (("usual", 5e-3), ("compiled", 3e-3), ("fused", 2e-3)):
        row |= {f"{name} seconds": seconds, f"{name} spread": [seconds, seconds], f"{name} peak bytes": 9}
    rows = {one["metric"]: one for one in kernel_figures({"card": "NVIDIA H200", "rows": [row]}).rows()}
    faster = next(one for name, one in rows.items() if name.endswith("times faster than usual"))
    assert (faster["value"], faster["met"]) == (2.5, True) and "NVIDIA H200" in faster["spread"]
