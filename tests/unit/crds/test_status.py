from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field, ValidationError

from convoy_crds.meta import Bookkeeping, StatusModel
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TrainingJobStatus, has_formed


def test_a_status_of_a_later_version_is_read() -> None:
    spec = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 1}]}
    status = {"phase": "Running", "later": 1, "restarts": {"total": 2, "later": 1}}
    body = {"metadata": {"name": "job"}, "spec": spec, "status": status}
    read = TrainingJob.model_validate(body).status
    assert (read.phase, read.restarts.total) == ("Running", 2)
    with pytest.raises(ValidationError):
        TrainingJob.model_validate({**body, "spec": {**spec, "later": 1}})


class Part(StatusModel):
    name: str
    text: str = ""
    names: list[str] = Field(default_factory=list)
    count: int = 0
    done: bool = False


class Record(Bookkeeping):
    name: str
    count: int = 0
    done: bool = False
    part: Part | None = None


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Part(name=""), {"name": "", "count": 0, "done": False}),
        (
            Part(name="n", text="t", names=[""]),
            {"name": "n", "text": "t", "names": [""], "count": 0, "done": False},
        ),
        (Record(name=""), {"name": ""}),
        (
            Record(name="", count=1, part=Part(name="n")),
            {"name": "", "count": 1, "part": {"name": "n", "count": 0, "done": False}},
        ),
    ],
)
def test_empty_optional_fields_are_left_out(model: StatusModel, expected: dict[str, Any]) -> None:
    assert model.to_dict() == expected
    assert type(model).model_validate(model.to_dict()) == model


@pytest.mark.parametrize(
    "status", [{}, {"internal": None}, {"internal": {"incarnation": {"membership": "m"}}}]
)
def test_json_and_model_agree_on_a_formed_incarnation(status: dict[str, Any]) -> None:
    known = {name: value for name, value in status.items() if value is not None}
    assert has_formed(status) is TrainingJobStatus.model_validate(known).formed
