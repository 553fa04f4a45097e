"""Tests of the sampler: a trajectory that another worker resumes has the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_workloads.engines.spotlight.learning import noise
from convoy_workloads.engines.spotlight.learning.noise import NoiseKey, start_noise, step_noise
from convoy_workloads.engines.spotlight.learning.policy import PicturePolicy, PointPolicy, Policy
from convoy_workloads.engines.spotlight.learning.sampler import Sampler, Trajectory
from convoy_workloads.engines.spotlight.workers import state_of, walk_of
from convoy_workloads.spot.ledger.encoding import decode, encode

STEPS = 6


def key(seed: int, prompt: int = 0, walk: int | None = None) -> NoiseKey:
    return NoiseKey("job", prompt, seed, (seed if walk is None else walk,))


def point_policy() -> tuple[Policy, int]:
    return PointPolicy(2, 4, 96), 2


def picture_policy() -> tuple[Policy, int]:
    return PicturePolicy(64, 4, 16, 2, 2), 64


def same(one: Trajectory, other: Trajectory) -> bool:
    return (one.path.tobytes(), one.log_probs.tobytes()) == (other.path.tobytes(), other.log_probs.tobytes())


@pytest.mark.parametrize("made", [point_policy, picture_policy])
def test_a_resumed_trajectory_has_the_bits_of_an_uninterrupted_one(made) -> None:
    torch.manual_seed(0)
    policy, size = made()
    sampler = Sampler(STEPS, 0.35, size)
    starts = [sampler.start(key(seed, seed % 4)) for seed in range(21)]
    whole = sampler.resume(policy, 7, starts)
    for until in range(1, STEPS):
        (half,) = sampler.resume(policy, 7, [starts[5]], until)
        saved = decode(encode(state_of(half)))
        moved = walk_of(half.key, saved)
        # The other worker has another batch, whose walks are at other steps.
        *_, resumed = sampler.resume(policy, 7, [*starts[: until + 2], moved])
        assert same(resumed, whole[5])
        assert resumed.versions == (7,) * STEPS


def after_losses(losses: Sequence[tuple[int, int, bool]]) -> tuple[Trajectory, Trajectory]:
    """Return a trajectory that was never interrupted, and the same one computed by one worker after another.

    Each worker goes on by some steps, beside some other walks, and then is killed before or after it commits.
    """
    torch.manual_seed(0)
    policy, size = point_policy()
    sampler = Sampler(STEPS, 0.35, size)
    (whole,) = sampler.resume(policy, 0, [sampler.start(key(1))])
    saved = encode(state_of(sampler.start(key(1))))
    for steps, others, committed in [*losses, (STEPS, 0, True)]:
        walk = walk_of(key(1), decode(saved))
        beside = [sampler.start(key(2 + other)) for other in range(others)]
        *_, walk = sampler.resume(policy, 0, [*beside, walk], min(STEPS, walk.step + steps))
        saved = encode(state_of(walk)) if committed else saved
    return whole, walk_of(key(1), decode(saved))


LOSSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.booleans()), max_size=6)


@settings(max_examples=cases(15), deadline=None, derandomize=True)
@given(LOSSES)
def test_losses_change_no_bit_of_a_trajectory(losses: list[tuple[int, int, bool]]) -> None:
    assert same(*after_losses(losses))


def test_noise_that_depends_on_earlier_draws_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    normals, generator = noise._normals, np.random.default_rng(1)

    def with_a_state(key: NoiseKey, use: int, seed: tuple[int, ...], shape: tuple[int, int]) -> Any:
        start = use == noise._LATENT
        return normals(key, use, seed, shape) if start else generator.standard_normal(shape, np.float32)

    assert same(*after_losses([(3, 0, False)]))
    monkeypatch.setattr(noise, "_normals", with_a_state)
    assert not same(*after_losses([(3, 0, False)]))


def test_each_step_keeps_the_version_that_made_it() -> None:
    torch.manual_seed(0)
    policy, size = point_policy()
    sampler = Sampler(STEPS, 0.35, size)
    (half,) = sampler.resume(policy, 3, [sampler.start(key(1))], 2)
    (whole,) = sampler.resume(policy, 4, [half])
    assert whole.versions == (3, 3, 4, 4, 4, 4)
    assert (whole.path[:3] == half.path).all()


def test_log_probabilities_are_those_of_the_noise() -> None:
    torch.manual_seed(0)
    policy, size = point_policy()
    sampler = Sampler(STEPS, 0.35, size)
    (walk,) = sampler.resume(policy, 0, [sampler.start(key(1))])
    drawn = step_noise(key(1), STEPS, size)
    assert walk.log_probs == pytest.approx(-(drawn**2).sum(axis=1) / 2, rel=1e-3)


def test_noise_depends_on_each_part_of_the_key_and_not_on_the_number_of_steps() -> None:
    one = NoiseKey("job", 1, 2, (3,))
    start, steps = start_noise(one, 5), step_noise(one, 4, 5)
    assert (step_noise(one, 2, 5) == steps[:2]).all()
    for other in (NoiseKey("j", 1, 2, (3,)), NoiseKey("job", 2, 2, (3,)), NoiseKey("job", 1, 3, (3,))):
        assert (start_noise(other, 5) != start).all()
    other = NoiseKey("job", 1, 2, (4,))
    assert (start_noise(other, 5) == start).all() and (step_noise(other, 4, 5) != steps).all()
    many = step_noise(one, 2000, 5)
    assert abs(many.mean()) < 0.05 and abs(many.std() - 1) < 0.05 and many.dtype == np.float32


def test_noise_is_that_of_a_generator_with_the_key() -> None:
    one = NoiseKey("job", 1, 2, (3,))
    text = repr((one.job, one.prompt, one.walk)).encode()
    cipher = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")
    bits = np.random.Philox(key=cipher, counter=1 << 192)
    wanted = np.random.Generator(bits).standard_normal((4, 5), np.float32)
    assert (step_noise(one, 4, 5) == wanted).all()
