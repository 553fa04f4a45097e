from __future__ import annotations

import pytest
from pydantic import ValidationError

from convoy_crds.trainingjob import TrainingJob


def test_a_status_of_a_later_version_is_read() -> None:
    spec = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 1}]}
    status = {"phase": "Running", "later": 1, "restarts": {"total": 2, "later": 1}}
    body = {"metadata": {"name": "job"}, "spec": spec, "status": status}
    read = TrainingJob.model_validate(body).status
    assert (read.phase, read.restarts.total) == ("Running", 2)
    with pytest.raises(ValidationError):
        TrainingJob.model_validate({**body, "spec": {**spec, "later": 1}})
