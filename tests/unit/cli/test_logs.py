"""Tests of `convoy logs`: log lines go to stdout, notices and errors go to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.client import Unreachable

from .fake_client import client, serving_job
from .test_show import job


@pytest.mark.parametrize(
    ("lines", "failure", "code", "stderr"),
    [
        (["[1/0] a", "[1/0] b"], None, 0, "gpt-worker-1 waits\n"),
        (["[1/0] a"], Unreachable("cut"), 1, "gpt-worker-1 waits\nerror: cut\n"),
        ([], None, 0, "gpt-worker-1 waits\nthe logs of the existing pods have no such lines\n"),
    ],
)
def test_read_errors_of_logs_go_to_stderr(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], failure: Exception | None, code: int, stderr: str
) -> None:
    requests: list[Any] = []

    def logs(name: str, *, notify: Any, **chosen: Any) -> Iterator[str]:
        requests.append((name, chosen))
        notify("gpt-worker-1 waits")
        yield from lines
        if failure:
            raise failure

    jobs = SimpleNamespace(get=lambda _: job(), logs=logs)
    monkeypatch.setattr("convoy.cli.logs.connect", lambda *_: client(training=jobs))
    done = CliRunner().invoke(app, ["logs", "gpt", "-f", "--replica", "spot-0"])
    assert (done.exit_code, done.stdout, done.stderr) == (code, "".join(f"{one}\n" for one in lines), stderr)
    chosen = {"rank": None, "incarnation": None, "role": None, "replica": "spot-0", "follow": True}
    assert requests == [("job", chosen)]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--replica", "server-0", "--rank", "1", "--role", "server"], 0, ""),
        (["--incarnation", "2"], 1, "--incarnation is for TrainingJobs"),
    ],
)
def test_a_replica_of_a_servingjob_is_chosen_by_its_name(
    monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, error: str
) -> None:
    requests: list[Any] = []

    def logs(name: str, **chosen: Any) -> Iterator[str]:
        requests.append((name, chosen["role"], chosen["replica"], chosen["rank"]))
        return iter(["[1/1] a"])

    jobs = SimpleNamespace(get=lambda _: serving_job(), logs=logs)
    monkeypatch.setattr("convoy.cli.logs.connect", lambda *_: client(serving=jobs))
    done = CliRunner().invoke(app, ["logs", "llm", *words])
    assert done.exit_code == code and error in done.stderr
    assert requests == ([] if code else [("llm", "server", "server-0", 1)])
