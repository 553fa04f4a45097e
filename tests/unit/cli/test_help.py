"""Tests of the version, the help texts and the error for a missing kubeconfig."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.client.api import missing_kubeconfig


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output.split()[0]) == (0, "convoy")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("logs", "[incarnation/rank]."),
        ("get", "List the objects of all namespaces."),
        ("delete", "-y, --yes"),
        ("checkpoint", "fsck"),
    ],
)
def test_help_is_complete(command: str, words: str) -> None:
    output = CliRunner().invoke(app, [command, "--help"]).output
    assert words in output
    assert "<bool>" not in output


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    there = tmp_path / "config"
    there.write_text("")
    assert missing_kubeconfig({}) is None
    assert missing_kubeconfig({"KUBECONFIG": f"{tmp_path}/no:{there}"}) is None
    done = subprocess.run(
        [sys.executable, "-m", "convoy.cli", "get"],
        env={"KUBECONFIG": f"{tmp_path}/no"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = f"error: KUBECONFIG names {tmp_path}/no, which does not exist\n"
    assert (done.returncode, done.stderr) == (1, words)
