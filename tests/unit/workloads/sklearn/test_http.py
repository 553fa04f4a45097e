"""Test of the engine sklearn behind the serving front."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.workloads.serving.harness import serving

from convoy_workloads.engines.sklearn.engine import SklearnEngine
from convoy_workloads.engines.sklearn.params import Params
from convoy_workloads.serving.protocol import ModelCard


class Harnessed(SklearnEngine):
    """The engine with the switches of the harness."""

    def __init__(self) -> None:
        super().__init__(Params(name="iris"), None)
        self.may_load, self.permits, self.free = threading.Event(), threading.Semaphore(0), True

    def load(self, renew: Callable[[], None]) -> ModelCard:
        self.may_load.wait(30)
        return super().load(renew)


async def test_a_model_is_described_and_called_over_http(tmp_path: Path) -> None:
    engine: Any = Harnessed()
    async with serving(tmp_path, engine) as rank:
        status, text = await rank.get("/v2/models/iris")
        assert status == 200 and '"name":"input","datatype":"FP64","shape":[-1,4]' in text
        rows = {"name": "rows", "datatype": "FP64", "shape": [2, 4], "data": [5, 3.5, 1.4, 0.2, 6.3, 3, 6, 2]}
        wanted = [{"name": "predict"}, {"name": "predict_proba"}]
        status, found, _ = await rank.post("/v2/models/iris/infer", {"inputs": [rows], "outputs": wanted})
        labels, shares = found["outputs"]
        assert (status, labels["data"], shares["shape"]) == (200, ["setosa", "virginica"], [2, 3])
        assert abs(sum(shares["data"][:3]) - 1) < 1e-9
        missing = {"inputs": [{**rows, "data": [None] * 8}]}
        status, found, _ = await rank.post("/v2/models/iris/infer", missing)
        message = found["error"]["message"]
        assert status == 400 and message.startswith("inputs: the model refuses them: ValueError: Input X")
