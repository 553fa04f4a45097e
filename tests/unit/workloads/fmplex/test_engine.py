"""Tests of the engine: equal bits, isolation, bounds, attach and detach."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from convoy_workloads.engines.fmplex import backbones, pods
from convoy_workloads.engines.fmplex.adapters import AdapterShape, random_adapter
from convoy_workloads.engines.fmplex.backbones import Patches, facts
from convoy_workloads.engines.fmplex.params import Backbone, Task
from convoy_workloads.engines.fmplex.pods import BatchKey
from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.serving.protocol import ModelError, Prediction, SelfTestFailed

from .tasks_engine import HERE, IMAGE, TEXT, engine, images, run, texts, values, write

MANY = [
    {"name": "plain"},
    {"name": "a", "adapter_ref": "seed:1", "head": "classify:3"},
    {"name": "b", "adapter_ref": "seed:2", "head": "classify:3"},
    {"name": "photos", "backbone_ref": "image", "adapter_ref": "seed:4"},
    {"name": "half", "backbone_ref": "half", "adapter_ref": "seed:5"},
]
WORDS = ("short", "a longer text", "a text that needs more than sixteen bytes", "x" * 48)


def test_a_shared_backbone_gives_the_bits_of_a_private_one() -> None:
    shared = engine(MANY)
    shared.self_test()
    drawn = random.Random(0)
    sent = [
        texts(number, drawn.choice(["plain", "a", "b", "half"]), drawn.choice(WORDS)) for number in range(60)
    ]
    sent += [images(100 + number, "photos", number, number + 1) for number in range(6)]
    drawn.shuffle(sent)
    together = run(shared, *sent)
    assert max(shared.batches.sizes) == 8
    for task in MANY:
        private = engine([task])
        private.self_test()
        for one in sent:
            if one.model == task["name"]:
                alone = values(run(private, one)[one.id])
                assert np.array_equal(values(together[one.id]), alone)


def test_a_task_gets_the_result_of_its_own_adapter() -> None:
    made = engine(MANY)
    first = run(made, texts(1, "a", "hello"), texts(2, "b", "hello"))
    swapped = [MANY[0], {**MANY[1], "adapter_ref": "seed:2"}, {**MANY[2], "adapter_ref": "seed:1"}]
    second = run(engine(swapped), texts(1, "a", "hello"), texts(2, "b", "hello"))
    for id_ in (1, 2):
        assert not np.array_equal(values(first[id_]), values(second[id_]))


def test_an_embedding_has_length_one_and_a_classifier_its_classes() -> None:
    made = engine(MANY)
    found = run(made, texts(1, "plain", "hello", "world"), texts(2, "a", "hello"))
    assert values(found[1]).shape == (2, 32)
    assert np.linalg.norm(values(found[1]), axis=1) == pytest.approx([1, 1], abs=1e-5)
    assert values(found[2]).shape == (1, 3)


def test_a_request_with_more_rows_than_a_batch_keeps_their_order() -> None:
    made = engine(MANY)
    rows = [f"text {number}" for number in range(30)]
    whole = values(run(made, texts(1, "a", *rows))[1])
    for number in (0, 17, 29):
        assert np.array_equal(whole[number], values(run(made, texts(2, "a", rows[number]))[2])[0])


@pytest.mark.parametrize(
    ("head", "message"), [("crashing", "this head is broken"), ("not_finite", "not finite")]
)
def test_a_failing_head_fails_its_own_task_only(head: str, message: str) -> None:
    made = engine([*MANY, {"name": "bad", "head": HERE + head}])
    found = run(made, texts(1, "bad", "x", "y"), texts(2, "a", "x"), texts(3, "bad", *"abcdefghijkl"))
    assert values(found[2]).shape == (1, 3)
    for id_ in (1, 3):
        error = found[id_].error
        assert error is not None and (error.status, error.code) == (500, "head_failed")
        assert "task 'bad'" in error.message and message in error.message
    assert made.usage().preempted == 0
    assert [model.pending for model in made.models()] == [0] * 6


def test_a_head_that_cannot_be_made_is_a_fault_of_the_model() -> None:
    with pytest.raises(ModelError, match=r"task 'bad': head .* cannot be made: OSError: the head's file"):
        engine([{"name": "bad", "head": HERE + "no_head"}])
    with pytest.raises(ModelError, match="No module named 'absent'"):
        engine([{"name": "bad", "head": "python:absent:make"}])


def test_a_task_has_a_bounded_queue_of_its_own() -> None:
    made = engine([{"name": "small", "max_queue": 2}, {"name": "other"}])
    found = run(
        made,
        texts(1, "small", "a", "b"),
        texts(2, "small", "c"),
        texts(3, "small", "d", "e", "f"),
        texts(4, "other", "g"),
    )
    assert [found[id_].error is None for id_ in (1, 2, 3, 4)] == [True, False, False, True]
    full, wide = found[2].error, found[3].error
    assert full is not None and (full.status, full.code, full.retry) == (429, "queue_full", 1.0)
    assert "task 'small' is full (2 rows)" in full.message
    assert wide is not None and wide.status == 400 and "has 3 rows" in wide.message


@pytest.mark.parametrize("text", ["", "x" * 49, "\u00e9" * 25])
def test_a_text_that_does_not_fit_is_refused_with_its_field(text: str) -> None:
    made = engine(MANY)
    error = run(made, texts(1, "a", "fine", text))[1].error
    assert error is not None and (error.status, error.field) == (400, "inputs.0.data.1")
    assert "accepts 1 to 48" in error.message


def test_an_image_with_values_that_are_not_finite_is_refused() -> None:
    made = engine(MANY)
    one = images(1, "photos", 1)
    one.inputs["image"][0, 0, 0, 0] = np.nan
    error = run(made, one)[1].error
    assert error is not None and error.status == 400 and "not finite" in error.message


def test_tasks_are_attached_and_detached_between_batches_and_no_request_is_lost() -> None:
    made = engine(MANY)
    drawn = random.Random(1)
    number, sent = 0, 0
    found: dict[int, Prediction] = {}
    attached: list[str] = []
    for round_ in range(60):
        action = drawn.random()
        if action < 0.2:
            name = f"live-{round_}"
            made.attach(Task(name=name, adapter_ref=f"seed:{round_}", head="classify:2"))
            attached.append(name)
        elif action < 0.35 and attached:
            name = attached.pop(drawn.randrange(len(attached)))
            done = made.detach(name)
            assert name not in made.cards()
            made.admit(texts(-round_ - 1, name, "late"))
            sent += 1
            while not done.done():
                found |= {one.sequence: one for one in made.step()}
        for _ in range(drawn.randrange(4)):
            number += 1
            made.admit(texts(number, drawn.choice(["a", "b", "plain", *attached]), drawn.choice(WORDS)))
            sent += 1
        found |= {one.sequence: one for one in made.step()}
    while made.usage().preempted:
        found |= {one.sequence: one for one in made.step()}
    assert len(found) == sent
    assert all((one.error is None) is (one.sequence > 0) for one in found.values())
    assert {one.error.status for one in found.values() if one.error} == {404}
    assert [model.pending for model in made.models()] == [0] * len(made.models())


def test_a_detach_for_which_nobody_waits_any_more_harms_no_other_task() -> None:
    made = engine(MANY)
    made.admit(texts(1, "a", "hello"))
    assert made.detach("a").cancel()
    made.admit(texts(2, "b", "hello"))
    found: list[Prediction] = []
    while len(found) < 2:
        found += made.step()
    assert [one.error for one in found] == [None, None]
    assert "a" not in [model.task.name for model in made.models()]


def test_the_slot_of_a_detached_task_is_used_again_without_its_adapter() -> None:
    made = engine(MANY)
    slot = next(model.assignment.slot for model in made.models() if model.task.name == "a")
    before = values(run(made, texts(1, "b", "hello"))[1])
    assert made.detach("a").done()
    made.attach(Task(name="new", adapter_ref="seed:9", head="classify:3"))
    assert made.models()[-1].assignment.slot == slot
    found = run(made, texts(1, "new", "hello"), texts(2, "b", "hello"))
    private = engine([{"name": "new", "adapter_ref": "seed:9", "head": "classify:3"}])
    assert np.array_equal(values(found[1]), values(run(private, texts(1, "new", "hello"))[1]))
    assert np.array_equal(values(found[2]), before)


def test_a_refused_task_leaves_nothing_behind() -> None:
    made = engine(MANY, memory_mib=1)
    with pytest.raises(ValueError, match="there is a task 'a' already"):
        made.attach(Task(name="a"))
    with pytest.raises(ValueError, match="there is no backbone 'video'; choose from text, image, half"):
        made.attach(Task(name="new", backbone_ref="video"))
    with pytest.raises(ModelError, match="cannot be made"):
        made.attach(Task(name="new", adapter_ref="seed:1", head="python:absent:make"))
    with pytest.raises(ModelError, match=r"adapter_ref names a file, but spec\.model is not set"):
        made.attach(Task(name="new", adapter_ref="file:x.safetensors"))
    assert [model.task.name for model in made.models()] == [task["name"] for task in MANY]
    made.attach(Task(name="new", adapter_ref="seed:1"))
    assert made.models()[-1].assignment.slot == 3


def test_memory_bounds_the_number_of_tasks() -> None:
    made = engine([{"name": "a", "adapter_ref": "seed:1"}], memory_mib=1)
    with pytest.raises(ModelError, match=r"no pod has room for it; \d+ MiB are missing"):
        for number in range(100):
            made.attach(Task(name=f"t{number}", adapter_ref="seed:1"))
    assert values(run(made, texts(1, "a", "x"))[1]).shape == (1, 32)


@pytest.mark.parametrize("spec", [TEXT, IMAGE], ids=["text", "image"])
def test_the_memory_of_a_backbone_is_known_before_it_is_loaded(spec: dict[str, Any]) -> None:
    backbone = Backbone.model_validate(spec)
    model = GPT(48, 2, 32, 2) if backbone.kind == "Text" else Patches(backbone)
    count = sum(one.numel() for one in model.parameters())
    assert facts(backbone, None, lambda: None).bytes == 4 * count
    half = backbone.model_copy(update={"dtype": "BFloat16"})
    assert facts(half, None, lambda: None).bytes == 2 * count


def test_weights_change_while_a_task_serves() -> None:
    made = engine([{"name": "a"}, {"name": "b"}])
    made.update("a", {"weight": 7.0})
    for number in range(64):
        made.admit(texts(number, "a", "x"))
        made.admit(texts(100 + number, "b", "x"))
    first = [one.sequence for _ in range(4) for one in made.step()]
    assert sum(one < 100 for one in first) >= 3 * sum(one >= 100 for one in first)
    assert made.cards()["a"].facts["weight"] == 7.0
    with pytest.raises(KeyError):
        made.update("absent", {"weight": 1.0})


def test_an_adapter_of_a_lower_rank_comes_from_a_file(tmp_path: Path) -> None:
    tensors = random_adapter(AdapterShape(2, 32, 4), 5)
    write(
        tmp_path / "own.safetensors",
        {**tensors, "head.weight": torch.ones(2, 32), "head.bias": torch.zeros(2)},
    )
    task = {"name": "own", "adapter_ref": "file:own.safetensors", "head": "classify:2"}
    made = engine([task, {"name": "plain", "head": "classify:2"}], tmp_path)
    found = run(made, texts(1, "own", "hello"), texts(2, "plain", "hello"))
    row = values(found[1])[0]
    # Processors sum the two equal rows of the head in different orders, so the last bits may differ.
    assert row[0] == pytest.approx(row[1], abs=1e-5)
    assert not np.array_equal(row, values(found[2])[0])


def test_a_file_that_does_not_fit_names_the_tensor(tmp_path: Path) -> None:
    write(tmp_path / "own.safetensors", random_adapter(AdapterShape(2, 64, 4), 5))
    task = {"name": "own", "adapter_ref": "file:own.safetensors"}
    with pytest.raises(ModelError, match=r"layers.0.qkv.a has shape \[64, 4\], expected \[32, 1 to 8\]"):
        engine([task], tmp_path)
    mixed = random_adapter(AdapterShape(2, 32, 4), 5)
    mixed["layers.1.out.b"] = torch.zeros(2, 32)
    write(tmp_path / "own.safetensors", mixed)
    with pytest.raises(ModelError, match=r"layers.1.out.b has rank 2, and layers.1.out.a has 4"):
        engine([task], tmp_path)
    with pytest.raises(ModelError, match="task 'own': its file cannot be read"):
        engine([{**task, "adapter_ref": "file:absent.safetensors"}], tmp_path)


def test_a_lack_of_memory_refuses_the_task_only(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(MANY)

    def load(*_: object) -> None:
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(backbones, "load", load)
    made.detach("photos")
    with pytest.raises(ModelError, match="task 'new' cannot be loaded: not enough memory"):
        made.attach(Task(name="new", backbone_ref="image"))
    assert values(run(made, texts(1, "a", "x"))[1]).shape == (1, 3)


def test_the_self_test_measures_costs_and_finds_a_wrong_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(MANY)
    made.self_test()
    pod = made.deployment.pods[0]
    key = BatchKey(made.models()[0].digest, 16)
    # A batch without any measurement costs a second for each item.
    assert 0 < pod.costs.cost(key, 1) < 1 and 0 < pod.costs.cost(key, 8) < 8
    assert not pod.padded


@pytest.mark.parametrize("noise", [False, True])
def test_batches_are_padded_where_their_size_changes_bits(
    noise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(MANY)
    pod = made.deployment.pods[0]
    original = pod.host.features
    random_ = torch.Generator().manual_seed(0)

    def inexact(backbone: Backbone, packed: Tensor, slots: Tensor) -> Tensor:
        found = original(backbone, packed, slots)
        error = torch.rand(1, generator=random_) if noise else torch.tensor(packed.shape[0])
        return found * (1 + 1e-3 * error)

    monkeypatch.setattr(pod.host, "features", inexact)
    if noise:
        with pytest.raises(SelfTestFailed, match="has other bits in a batch of 1 rows"):
            made.self_test()
        return
    made.self_test()
    assert pod.padded == {model.digest for model in made.models()}
    together = run(made, texts(1, "a", "x"), texts(2, "b", "y"))
    assert np.array_equal(values(together[1]), values(run(made, texts(1, "a", "x"))[1]))


def test_another_pod_gets_a_message_when_a_second_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(pods, "time", SimpleNamespace(monotonic=lambda: now))
    sent = threading.Semaphore(0)
    host = SimpleNamespace(idle=sent.release, close=lambda: None)
    pod = pods.Pod(cast(Any, host), "Fair", 4, remote=True)
    pod.idle()
    assert sent.acquire(timeout=10)
    now += 0.9
    pod.idle()
    now += 0.2
    for _ in range(1000):
        pod.idle()
        if sent.acquire(timeout=0.01):
            break
    else:
        pytest.fail("there was no second message")
    pod.idle()
    pod.close()
    assert not sent.acquire(blocking=False)


def test_a_batch_waits_for_rows_but_not_beyond_a_target() -> None:
    made = engine([{"name": "a"}, {"name": "hasty", "slo_ms": 1}], batch={"max": 8, "max_wait_ms": 1000})
    made.admit(texts(1, "a", "x"))
    pod = made.deployment.pods[0]
    assert 0.5 < made.wait_seconds(pod) <= 1.0
    made.admit(texts(2, "hasty", "x"))
    assert made.wait_seconds(pod) <= 0
    assert {one.sequence for one in made.step()} == {1, 2}


def test_a_cancelled_request_frees_its_place() -> None:
    made = engine([{"name": "a", "max_queue": 2}])
    made.admit(texts(1, "a", "x", "y"))
    made.cancel(1)
    made.cancel(1)
    assert values(run(made, texts(2, "a", "x", "y"))[2]).shape == (2, 32)


def test_a_reload_keeps_attached_tasks() -> None:
    made = engine(MANY)
    made.attach(Task(name="new", adapter_ref="seed:9"))
    before = values(run(made, texts(1, "new", "x"))[1])
    made.load(lambda: None)
    assert np.array_equal(values(run(made, texts(1, "new", "x"))[1]), before)
