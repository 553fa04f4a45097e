"""Tests the example of the page about Experiments."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from convoy_crds.experiment import Experiment

PAGE = Path(__file__).parents[3] / "docs" / "experiment.md"


def test_the_example_can_run_as_it_is_shown() -> None:
    """A run whose pods are on nodes without the label fails, because the agent refuses its faults."""
    [text] = re.findall(r"```yaml\n(apiVersion.*?)```", PAGE.read_text(), re.DOTALL)
    spec = Experiment.model_validate(yaml.safe_load(text)).spec
    assert spec.perturbations
    for arm in spec.arms:
        assert arm.template is not None
        [role] = arm.template.to_dict()["spec"]["roles"]
        assert role["template"]["spec"]["nodeSelector"] == {"convoy.dev/fault-injection": "true"}
