"""Tests of casgd's data and parameters, and of the libraries in `comm` on which it stands."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from convoy_workloads.comm.buckets import Buckets
from convoy_workloads.comm.collectives import Collectives
from convoy_workloads.comm.triangle import BlockTriangle
from convoy_workloads.engines.casgd import data
from convoy_workloads.engines.casgd.engine import Glm
from convoy_workloads.engines.casgd.params import Params
from convoy_workloads.optim.losses import LOSSES
from convoy_workloads.optim.places import PLACES
from convoy_workloads.optim.precision import Precision, with_choices
from convoy_workloads.runtime import DataError

from ..gloo_threads import run_ranks


@pytest.mark.parametrize("loss", ["logistic", "linear", "poisson"])
@pytest.mark.parametrize("name", ["breast-cancer", "digits", "synth"])
def test_all_data_fit_all_losses(name: str, loss: str) -> None:
    problem = data.load(Params.model_validate({"data": name, "loss": loss, "rows": 50, "features": 7}))
    assert len(problem.features) == len(problem.targets) > 40
    assert torch.equal(problem.features[:, -1], torch.ones(len(problem.targets), dtype=torch.float64))
    assert LOSSES[loss].accepts(problem.targets).all()
    assert torch.isfinite(problem.features).all()


def test_a_file_of_libsvm_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("1 1:2 3:4\n-1 2:1\n1 3:2\n")
    problem = data.load(Params(data="file", file=str(file)))
    assert problem.targets.tolist() == [1, 0, 1]
    assert problem.features.shape == (3, 4)
    assert torch.allclose(problem.features[:, :3].mean(0), torch.zeros(3, dtype=torch.float64))
    for text in ("1 one:2\n", "1 1:nan\n", ""):
        file.write_text(text)
        with pytest.raises(DataError, match=r"params\.file"):
            data.load(Params(data="file", file=str(file)))
    with pytest.raises(DataError, match="cannot be read"):
        data.load(Params(data="file", file=str(tmp_path / "absent")))


@pytest.mark.parametrize("partition", ["contiguous", "striped"])
def test_each_column_has_one_rank(partition: str) -> None:
    for columns, world in ((7, 3), (3, 3), (10, 1)):
        parts = [
            list(range(columns))[data.columns_of(rank, world, columns, partition)] for rank in range(world)
        ]
        assert sorted(one for part in parts for one in part) == list(range(columns)) and all(parts)
    with pytest.raises(DataError, match="31 columns, the intercept included, fewer than the 32 ranks"):
        data.columns_of(0, 32, 31, partition)


def test_all_ranks_gather_the_weights_of_all_columns() -> None:
    def rank_main(collectives: Collectives) -> torch.Tensor:
        model = Glm(5, torch.float64, data.columns_of(collectives.rank, 2, 5, "striped"))
        model.weight.fill_(99.0)
        model.own.fill_(collectives.rank + 1.0)
        model.gather(collectives)
        return model.weight

    assert [one.tolist() for one in run_ranks(2, rank_main)] == [[1, 2, 1, 2, 1]] * 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"s": 65}, "s: 65 is larger than the run of iterations=64"),
        ({"s": 0}, "greater than or equal to 1"),
        ({"lr": 1, "l2": 1}, "is not below 1"),
        ({"data": "file"}, "file: needed"),
        ({"file": "rows"}, "only there"),
        ({"choices": {"gram": "bf16"}}, "'gram' is not one of"),
        ({"choices": {"weight": "fp8"}}, "'bf16', 'fp32' or 'fp64'"),
    ],
)
def test_invalid_parameters_are_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Params.model_validate(given)


def test_each_place_of_the_library_is_a_choice_of_the_engine() -> None:
    assert tuple(one.name for one in fields(Precision)) == PLACES
    for place in PLACES:
        params = Params(choices={place: "bf16"})
        assert getattr(with_choices(params.precision, params.choices), place) == torch.bfloat16
    with pytest.raises(ValueError, match="'gram' is not one of"):
        with_choices("fp32", {"gram": "bf16"})
    with pytest.raises(ValueError, match="'fp8' is not one of"):
        with_choices("fp32", {"weight": "fp8"})


def test_the_triangle_has_the_blocks_below_the_diagonal() -> None:
    layout = BlockTriangle([2, 1, 3])
    assert (layout.rows, layout.elements) == (6, 1 * 2 + 3 * 3)
    flat = torch.zeros(layout.elements)
    for block in range(3):
        layout.row(flat, block).fill_(block)
    assert flat.tolist() == [1] * 2 + [2] * 9
    assert BlockTriangle([16] * 8).elements < 128 * 129 / 2


def test_buckets_hold_each_tensor_once_and_keep_to_their_size() -> None:
    shapes = [(2, 3), (4,), (), (9,), (1, 2)]
    buckets = Buckets(shapes, max_bytes=40)
    flat = buckets.zeros()
    assert [len(one) for one in flat] == [10, 1 + 9, 2]
    assert buckets.bytes == 4 * 22
    for number, view in enumerate(buckets.views(flat)):
        view.fill_(number)
    assert [tuple(view.shape) for view in buckets.views(flat)] == shapes
    assert flat[1].tolist() == [2] + [3] * 9
    with pytest.raises(ValueError, match="max_bytes"):
        Buckets(shapes, max_bytes=0)

    def rank_main(collectives: Collectives) -> list[list[float]]:
        own = [one + collectives.rank for one in flat]
        buckets.all_reduce(own, collectives)
        assert collectives.traffic.calls == buckets.count
        assert collectives.traffic.payload_bytes == buckets.bytes
        return [one.tolist() for one in own]

    assert run_ranks(2, rank_main) == [[[2 * x + 1 for x in one.tolist()] for one in flat]] * 2
