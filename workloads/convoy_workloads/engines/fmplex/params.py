"""Parameters of the engine fmplex. `python -m convoy_workloads.engines.fmplex.params` prints their JSON
Schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from convoy_workloads.engines.fmplex.orders import Order

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
HEAD = re.compile(r"embed|classify:(?P<classes>[1-9][0-9]{0,4})|python:(?P<module>[\w.]+):(?P<function>\w+)")
ADAPTER = re.compile(r"|seed:(?P<seed>[0-9]{1,9})|file:(?P<file>[^/\0][^\0]*\.safetensors)")
STEP = 4
"""Inputs are padded to a multiple of this number of positions. The rows of a matrix product then have the
same bits in a batch of any size, on processors with AVX-512. The self-test finds out where they do not.
"""


class Backbone(BaseModel):
    """A model that tasks share. Its weights never change."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=NAME)]
    kind: Literal["Text", "Image"]
    """`Text`: a transformer over the bytes of a text, as gpt trains it. `Image`: a transformer over the
    patches of an image.
    """
    source: Literal["Seed", "Model"] = "Seed"
    """`Seed`: random weights. `Model`: the checkpoint in spec.model, which gpt has trained."""
    layers: Annotated[int, Field(ge=1, le=128)] = 4
    """Number of transformer blocks. With source Model, the checkpoint has it."""
    width: Annotated[int, Field(ge=16, le=16_384)] = 128
    """Size of the residual stream. With source Model, the checkpoint has it."""
    heads: Annotated[int, Field(ge=1, le=256)] = 4
    """Number of attention heads. It must divide `width`."""
    context: Annotated[int, Field(ge=STEP, le=8192)] = 128
    """Maximum number of bytes of a text. With source Model, the checkpoint has it."""
    image_size: Annotated[int, Field(ge=4, le=1024)] = 32
    """Width and height of an image, in pixels."""
    patch: Annotated[int, Field(ge=1, le=256)] = 8
    """Width and height of a patch, in pixels."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed of the weights."""
    dtype: Literal["Float32", "BFloat16"] = "Float32"
    """Type of the weights and of the computation. `BFloat16` needs half of the memory, and is fast on
    processors with AMX.
    """

    @model_validator(mode="after")
    def _fits(self) -> Backbone:
        if self.width % self.heads:
            raise ValueError(
                f"backbone {self.name!r}: width {self.width} is no multiple of heads {self.heads}"
            )
        if self.kind == "Image":
            if self.source == "Model":
                raise ValueError(f"backbone {self.name!r}: source Model is for kind Text only")
            patches = (self.image_size // self.patch) ** 2
            if self.image_size % self.patch or patches % STEP:
                raise ValueError(
                    f"backbone {self.name!r}: image_size {self.image_size} and patch {self.patch} must "
                    f"give a multiple of {STEP} patches"
                )
        elif self.context % STEP:
            raise ValueError(f"backbone {self.name!r}: context {self.context} is no multiple of {STEP}")
        return self

    @cached_property
    def digest(self) -> str:
        """Return the digest of all that decides the weights. Backbones with equal digests are one."""
        body = self.model_dump(exclude={"name"})
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


class Task(BaseModel):
    """A task: a model of its own for its clients, on a backbone that it shares."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=NAME)]
    """Name of the model in requests."""
    backbone_ref: str = ""
    """Name of the task's backbone. Empty for `backbone_ref` of the engine."""
    head: str = "embed"
    """`embed`: the normalised mean of the backbone's outputs. `classify:N`: scores of N classes.
    `python:MODULE:FUNCTION`: a function of the image, which gets the task's name and the width and returns a
    `torch.nn.Module` from [1, width] to a tensor.
    """
    adapter_ref: str = ""
    """The task's low-rank adapter: empty for none, `seed:N` for random values, or `file:PATH.safetensors` in
    the folder of spec.model. The file may also have `head.weight` and `head.bias`.
    """
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the compute time, relative to the other tasks with waiting requests."""
    max_queue: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Maximum number of waiting rows of this task. Further requests get status 429."""
    slo_ms: Annotated[int, Field(ge=0, le=86_400_000)] = 0
    """Target for the latency of a request, in milliseconds; 0 for none. A batch does not wait for further
    requests if that would miss the target.
    """

    @model_validator(mode="after")
    def _known(self) -> Task:
        if HEAD.fullmatch(self.head) is None:
            raise ValueError(
                f"task {self.name!r}: head {self.head!r} must be embed, classify:N or python:MODULE:FUNCTION"
            )
        found = ADAPTER.fullmatch(self.adapter_ref)
        if found is None or ".." in (found["file"] or "").split("/"):
            raise ValueError(
                f"task {self.name!r}: adapter_ref {self.adapter_ref!r} must be empty, seed:N, or "
                "file:PATH.safetensors with a path in the model's folder"
            )
        return self


class BatchSettings(BaseModel):
    """The batches that tasks share."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    max: Annotated[int, Field(ge=1, le=1024)] = 16
    """Maximum number of rows of a batch."""
    max_wait_ms: Annotated[float, Field(ge=0, le=1000)] = 2.0
    """Longest time that a row waits for further rows while nothing else is computed, in milliseconds."""


class Params(BaseModel):
    """Tasks on shared backbones. A task is a low-rank adapter and a head."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=NAME)] = "fmplex"
    """Value of the label `model` in metrics."""
    backbones: Annotated[list[Backbone], Field(min_length=1, max_length=16)] = [
        Backbone(name="text", kind="Text"),
        Backbone(name="image", kind="Image"),
    ]
    """The backbones that tasks may name. Only those with tasks are loaded."""
    backbone_ref: str = "text"
    """Name of the backbone of tasks without a `backbone_ref`."""
    tasks: Annotated[list[Task], Field(max_length=1024)] = [
        Task(name="embed"),
        Task(name="photos", backbone_ref="image"),
    ]
    """The tasks. Further ones can be attached while the engine runs."""
    adapter_rank: Annotated[int, Field(ge=1, le=256)] = 8
    """Rank of the adapters. Adapters from files may have a smaller rank."""
    batch: BatchSettings = BatchSettings()
    order: Order = "Fair"
    """Order of the requests. `Fair`: batch-aware fair queueing. `Arrival`: first come, first served.
    `PerTask`: the tasks in turn, each with batches of its own.
    """
    memory_mib: Annotated[int, Field(ge=0, le=2**24)] = 0
    """Memory that a pod has for weights; 0 for no limit."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of threads that compute. Small backbones are fastest with one."""
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = 4096
    """Maximum number of requests that the front holds for all tasks together."""
    request_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Longest time for a request. The header `X-Request-Timeout` may shorten it."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 4 << 20
    """Maximum size of a request's body."""

    @model_validator(mode="after")
    def _consistent(self) -> Params:
        if twice := _repeated(one.name for one in self.backbones):
            raise ValueError(f"backbones: the name {twice!r} occurs twice")
        if twice := _repeated(one.name for one in self.tasks):
            raise ValueError(f"tasks: the name {twice!r} occurs twice")
        for one in self.tasks:
            self.backbone_of(one)
        return self

    def backbone_of(self, task: Task) -> Backbone:
        """Return the backbone of a task. Raises ValueError if there is none of that name."""
        wanted = task.backbone_ref or self.backbone_ref
        for one in self.backbones:
            if one.name == wanted:
                return one
        known = ", ".join(one.name for one in self.backbones)
        raise ValueError(f"task {task.name!r}: there is no backbone {wanted!r}; choose from {known}")


def _repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice; None if all differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
