"""Tests of the parameters: each mistake is named with its place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from convoy_workloads.engines.fmplex.params import Backbone, Params

TEXT = {"name": "text", "kind": "Text"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"tasks": [{"name": "a"}, {"name": "a"}]}, "tasks: the name 'a' occurs twice"),
        ({"backbones": [TEXT, TEXT]}, "backbones: the name 'text' occurs twice"),
        (
            {"tasks": [{"name": "a", "backbone_ref": "video"}]},
            "task 'a': there is no backbone 'video'; choose from text, image",
        ),
        ({"backbone_ref": "video"}, "task 'embed': there is no backbone 'video'"),
        ({"tasks": [{"name": "a", "weight": 0}]}, "tasks.0.weight"),
        ({"tasks": [{"name": "a", "weight": -1}]}, "tasks.0.weight"),
        ({"tasks": [{"name": "a", "max_queue": 0}]}, "tasks.0.max_queue"),
        ({"tasks": [{"name": "a/b"}]}, "tasks.0.name"),
        ({"tasks": [{"name": "a", "head": "classify:0"}]}, "head 'classify:0' must be embed, classify:N"),
        ({"tasks": [{"name": "a", "head": "python:x"}]}, "head 'python:x' must be"),
        ({"tasks": [{"name": "a", "adapter_ref": "x"}]}, "adapter_ref 'x' must be empty, seed:N"),
        ({"tasks": [{"name": "a", "adapter_ref": "file:../x.safetensors"}]}, "adapter_ref 'file:../x"),
        ({"tasks": [{"name": "a", "adapter_ref": "file:/etc/x.safetensors"}]}, "adapter_ref 'file:/etc"),
        ({"tasks": [{"name": "a", "adapter_ref": "file:x.pt"}]}, "adapter_ref 'file:x.pt'"),
        ({"tasks": [{"name": "a", "priority": 1}]}, "tasks.0.priority"),
        ({"backbones": [{**TEXT, "width": 100, "heads": 3}]}, "width 100 is no multiple of heads 3"),
        ({"backbones": [{**TEXT, "context": 102}]}, "context 102 is no multiple of 4"),
        (
            {"backbones": [{"name": "image", "kind": "Image", "image_size": 30}]},
            "image_size 30 and patch 8 must give a multiple of 4 patches",
        ),
        (
            {"backbones": [{"name": "image", "kind": "Image", "source": "Model"}]},
            "source Model is for kind Text only",
        ),
        ({"batch": {"max": 0}}, "batch.max"),
    ],
)
def test_a_mistake_is_named_with_its_place(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Params.model_validate(body)
    assert message in str(caught.value)


def test_backbones_that_differ_in_their_names_only_are_one() -> None:
    one, other = Backbone(name="a", kind="Text"), Backbone(name="b", kind="Text")
    assert one.digest == other.digest
    assert one.digest != Backbone(name="a", kind="Text", seed=2).digest
