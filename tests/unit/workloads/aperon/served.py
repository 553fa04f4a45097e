"""The engine in the test's own process, behind the serving front."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.workloads.serving.harness import Rank, serving

from convoy_workloads.engines.aperon import engine
from convoy_workloads.engines.aperon.engine import VectorEngine
from convoy_workloads.engines.aperon.params import Params

DIMENSION = 6
VECTORS = np.random.default_rng(3).standard_normal((40, DIMENSION)).astype(np.float32)


def params(state: Path, **more: Any) -> Params:
    body = {"dimension": DIMENSION, "fields": {"genre": "keyword", "year": "integer"}, "state": str(state)}
    return Params.model_validate({"recall_share": 0, "kernel": "twin", **body, **more})


class Served(Rank):
    """A rank with the engine."""

    index: VectorEngine

    async def call(self, name: str, body: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
        status, found, _ = await self.post(f"/v1/vectors/{name}", body, headers)
        assert status == 200, found
        return found

    async def refused(self, name: str, body: Any) -> tuple[int, str, str]:
        """Return status, field and message of an error."""
        status, found, _ = await self.post(f"/v1/vectors/{name}", body)
        assert status >= 400, found
        return status, found["error"]["param"], found["error"]["message"]


@contextlib.asynccontextmanager
async def served(
    folder: Path, given: Params, path: Path | None = None, **settings: Any
) -> AsyncIterator[Any]:
    made: Any = VectorEngine(given, path)
    made.may_load = made.permits = _Nothing()
    async with serving(folder, made, engine.limits(given), **settings) as rank:
        rank.__class__ = Served
        yield rank


class _Nothing:
    """A stand-in for the switches of the harness: they have no effect on this engine."""

    def set(self) -> None:
        pass

    def release(self, _: int) -> None:
        pass


def rows(first: int, last: int) -> dict[str, Any]:
    """Return the body of an upsert of some vectors."""
    return {
        "ids": [f"v{at}" for at in range(first, last)],
        "vectors": VECTORS[first:last].tolist(),
        "metadata": [
            {"genre": "drama" if at % 2 else "comedy", "year": 2000 + at} for at in range(first, last)
        ],
    }


def nearest(query: Any, among: range, k: int) -> list[str]:
    """Return the ids of the nearest vectors."""
    distances = np.square(VECTORS[list(among)] - np.asarray(query, np.float32)).sum(axis=1)
    return [f"v{among[at]}" for at in np.argsort(distances)[:k]]
