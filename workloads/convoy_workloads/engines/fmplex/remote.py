"""The host in another pod of the replica, reached over the replica's process group.

Rank 0 sends a header of four integers, and the tensors that belong to it. The other pod computes and
responds. Rank 0 sends at least one header a second, so a pod that hears nothing for long knows that rank 0
is lost.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from convoy_workloads.engines.fmplex.backbones import BackboneFacts
from convoy_workloads.engines.fmplex.host import LocalHost
from convoy_workloads.engines.fmplex.params import Backbone, Task
from convoy_workloads.serving.protocol import ModelError

WORKING_SECONDS = 2.0
"""Seconds between two signs of life of a pod that loads."""


class Notice(IntEnum):
    """Kinds of headers."""

    IDLE = 0
    """There is nothing to do. Rank 0 is alive."""
    COMPUTE = 1
    """Compute a batch. The header has the index of the backbone, the number of rows and their length."""
    ATTACH = 2
    """Load a task. The header has the number of bytes of the JSON that follows."""
    DETACH = 3
    """Drop a task. The header is that of ATTACH."""
    END = 4
    """The replica is ending."""


class Reply(IntEnum):
    """Kinds of responses to ATTACH and DETACH."""

    DONE = 0
    WORKING = 1
    """The pod still loads."""
    FAILED = 2
    """The text of the error follows."""


class RemoteHost:
    """Another pod, as rank 0 uses it. Errors of the connection are RuntimeErrors; they end the engine."""

    def __init__(self, rank: int, backbones: list[Backbone], facts: Mapping[str, BackboneFacts]) -> None:
        """`backbones`: all backbones of the parameters, in their order. `facts`: by digest."""
        self._rank = rank
        self._indexes = {one.digest: number for number, one in enumerate(backbones)}
        self._facts = facts

    def attach(self, task: Task, backbone: Backbone, slot: int) -> None:
        """Let the pod load a task. Raises ModelError with the pod's error."""
        self._request(
            Notice.ATTACH, {"task": task.model_dump(), "backbone": backbone.model_dump(), "slot": slot}
        )

    def detach(self, backbone: Backbone, slot: int) -> None:
        """Let the pod drop a task."""
        self._request(Notice.DETACH, {"backbone": backbone.model_dump(), "slot": slot})

    def features(self, backbone: Backbone, packed: Tensor, slots_B: Tensor) -> Tensor:
        """Return the features of a batch, which the pod computes."""
        facts = self._facts[backbone.digest]
        length = packed.shape[1] - 1 if packed.dim() == 2 else 0
        self._send(Notice.COMPUTE, self._indexes[backbone.digest], packed.shape[0], length)
        dist.send(slots_B, self._rank)
        dist.send(packed.contiguous(), self._rank)
        found = torch.empty((packed.shape[0], facts.width))
        dist.recv(found, self._rank)
        return found

    def idle(self) -> None:
        """Show the pod that rank 0 is alive."""
        self._send(Notice.IDLE)

    def close(self) -> None:
        """Let the pod end. A pod that is lost already is ignored."""
        with contextlib.suppress(RuntimeError):
            self._send(Notice.END)

    def _send(self, notice: Notice, *values: int) -> None:
        header = torch.zeros(4, dtype=torch.int64)
        header[0] = int(notice)
        header[1 : 1 + len(values)] = torch.tensor(values, dtype=torch.int64)
        dist.send(header, self._rank)

    def _request(self, notice: Notice, body: Mapping[str, Any]) -> None:
        data = _bytes(json.dumps(body))
        self._send(notice, len(data))
        dist.send(data, self._rank)
        reply = torch.empty(2, dtype=torch.int64)
        while True:
            dist.recv(reply, self._rank)
            kind, length = Reply(int(reply[0])), int(reply[1])
            if kind is Reply.DONE:
                return
            if kind is Reply.FAILED:
                raise ModelError(_text(_receive(length, self._rank)))


class Follower:
    """The other end, in the pod that hosts tasks for rank 0."""

    def __init__(self, host: LocalHost, backbones: list[Backbone]) -> None:
        self._host = host
        self._backbones = backbones
        self._working_at = 0.0
        self._loading = False

    def renew(self) -> None:
        """Show rank 0 that this pod still loads."""
        now = time.monotonic()
        if self._loading and now - self._working_at >= WORKING_SECONDS:
            self._working_at = now
            _reply(Reply.WORKING)

    def follow(self, beat: Callable[[], None]) -> None:
        """Do what rank 0 requests, until it ends. `beat` is called for each header. Raises RuntimeError if
        rank 0 is lost.
        """
        header = torch.empty(4, dtype=torch.int64)
        while True:
            dist.recv(header, 0)
            beat()
            notice = Notice(int(header[0]))
            if notice is Notice.END:
                return
            if notice is Notice.COMPUTE:
                self._compute(*(int(one) for one in header[1:]))
            elif notice in (Notice.ATTACH, Notice.DETACH):
                self._change(notice, json.loads(_text(_receive(int(header[1]), 0))))

    def _compute(self, index: int, rows: int, length: int) -> None:
        backbone = self._backbones[index]
        slots = torch.empty(rows, dtype=torch.int64)
        dist.recv(slots, 0)
        packed = self._host.form_of(backbone.digest).empty(rows, length)
        dist.recv(packed, 0)
        dist.send(self._host.features(backbone, packed, slots).float().cpu().contiguous(), 0)

    def _change(self, notice: Notice, body: Mapping[str, Any]) -> None:
        backbone = Backbone.model_validate(body["backbone"])
        self._loading, self._working_at = True, time.monotonic()
        try:
            if notice is Notice.ATTACH:
                self._host.attach(Task.model_validate(body["task"]), backbone, body["slot"])
            else:
                self._host.detach(backbone, body["slot"])
        except ModelError as error:
            self._loading = False
            data = _bytes(str(error))
            _reply(Reply.FAILED, len(data))
            dist.send(data, 0)
            return
        self._loading = False
        _reply(Reply.DONE)


def _reply(kind: Reply, length: int = 0) -> None:
    dist.send(torch.tensor([int(kind), length], dtype=torch.int64), 0)


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _text(data: Tensor) -> str:
    return bytes(data.numpy()).decode()


def _receive(length: int, rank: int) -> Tensor:
    found = torch.empty(length, dtype=torch.uint8)
    dist.recv(found, rank)
    return found
