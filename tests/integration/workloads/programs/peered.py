"""A serving engine that writes a line with its peers whenever it gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.protocol import Inference, ModelCard, Prediction, Usage
from convoy_workloads.serving.rank import run


class Params(BaseModel):
    """An engine without parameters."""


class Peered:
    """An engine without a model. Its load ends when it has got its peers."""

    def __init__(self) -> None:
        self._known = threading.Event()

    def set_peers(self, own: str, others: Sequence[str]) -> None:
        log_line(f"peers of {own}: {' '.join(others)}.")
        self._known.set()

    def load(self, renew: Callable[[], None]) -> ModelCard:
        while not self._known.wait(0.1):
            renew()
        return ModelCard("peered", 0, "no model")

    def self_test(self) -> None:
        pass

    def admit(self, payload: Inference) -> bool:
        return True

    def step(self) -> Sequence[Prediction]:
        return []

    def cancel(self, sequence: int) -> None:
        pass

    def idle(self) -> None:
        pass

    def usage(self) -> Usage:
        return Usage()

    def close(self) -> None:
        pass

    def follow(self, heartbeat: Any) -> None:
        pass


def _make(params: Params, path: Path | None, group: Group) -> Peered:
    return Peered()


if __name__ == "__main__":
    run("peered", Params, _make, lambda _: Limits())
