"""Runs the examples of docs/python-client.md unchanged."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from convoy.client import Client

from .conftest import Report, condition

PAGE = Path(__file__).parents[3] / "docs" / "python-client.md"


def test_the_examples_work(
    control_plane: Any,
    client: Client,
    report: Report,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = control_plane.kubeconfig().read_text()
    path = control_plane.folder / "kubeconfig-example"
    path.write_text(text.replace("context:\n", f"context:\n    namespace: {client.namespace}\n", 1))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.setenv("KUBECONFIG", str(path))
    first, serving, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)

    def operate() -> None:
        """Complete the job, as the operator would do."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if client.training_jobs.list():
                return report("gpt", phase="Succeeded", conditions=[condition("Complete", "Completed")])
            time.sleep(0.05)

    operator = threading.Thread(target=operate)
    operator.start()
    names: dict[str, Any] = {}
    exec(first, names)
    operator.join()
    assert capsys.readouterr().out == "gpt Succeeded\n"
    assert client.training_jobs.list() == []

    # A rollout needs an operator. tests/unit/client has tests of these calls.
    calls = re.findall(r"^client\.serving_jobs\.(\w+)\(", serving, re.M)
    assert calls and all(callable(getattr(client.serving_jobs, call)) for call in calls)

    exec(second, names)
    output = capsys.readouterr().out
    assert output.startswith("spec.roles ") and "at least 1" in output
