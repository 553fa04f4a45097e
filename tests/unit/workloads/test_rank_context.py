from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.runtime.errors import ParamsError
from convoy_workloads.runtime.rank_context import RankContext, from_environment


def test_a_program_outside_a_job_has_a_world_size_of_one() -> None:
    context = from_environment({})
    assert context == RankContext()
    assert not context.launched


def test_a_rank_context_has_the_rank_and_world_size() -> None:
    context = from_environment(
        {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "CONVOY_INCARNATION": "2",
         "CONVOY_JOB": "ml/gpt", "CONVOY_PARAMS": '{"steps": 5}', "CONVOY_CHECKPOINT_DIR": "/ck/uid",
         "CONVOY_CHECKPOINT_SECONDS": "60"}
    )  # fmt: skip
    assert (context.rank, context.world, context.local_rank, context.incarnation) == (3, 8, 1, 2)
    assert (context.params, context.checkpoint_dir, context.checkpoint_seconds) == (
        {"steps": 5},
        Path("/ck/uid"),
        60.0,
    )
    assert context.launched and context.journal
    assert not from_environment({"CONVOY_CHECKPOINT_JOURNAL": "false"}).journal


@pytest.mark.parametrize("name", ["RANK", "CONVOY_PARAMS", "CONVOY_CHECKPOINT_SECONDS"])
def test_a_malformed_value_is_a_parameter_error(name: str) -> None:
    with pytest.raises(ParamsError, match="malformed"):
        from_environment({name: "x"})


def test_parameters_are_an_object() -> None:
    with pytest.raises(ParamsError, match="JSON object"):
        from_environment({"CONVOY_PARAMS": "[]"})
