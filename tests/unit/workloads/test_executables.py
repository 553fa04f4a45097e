"""Tests of the messages about programs that cannot be executed. The files are real files that the kernel
refuses to run.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from convoy_workloads.launcher import executables
from convoy_workloads.launcher.command import CommandError, resolve


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"#!/bin/sh\r\necho\r\n", "It has Windows line ends"),
        (
            b"#!/opt/conda/bin/python3.9 -u\n",
            "names the interpreter /opt/conda/bin/python3.9, which does not exist in this image",
        ),
        (b"echo\n", "Add a first line that names its interpreter"),
        (b"\x7fELF\x02\x01\x01" + bytes(60), "built for another processor architecture than "),
        (b"", "Exec format error"),
    ],
)
def test_a_file_that_the_kernel_cannot_execute_is_reported(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(content)
    path.chmod(0o755)
    with pytest.raises(OSError) as error:
        subprocess.run([path], check=False, executable=path)
    assert words in executables.exec_error(str(path), error.value)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("python train.py --lr 0.1", 127, "The name contains spaces: make each word an item of the list"),
        ("python\n", 127, "The name contains spaces"),
        ("run.sh", 126, "defaultMode: 0755"),
        ("./run.sh", 126, "start it by its interpreter"),
    ],
)
def test_a_command_that_is_no_program_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, words: str
) -> None:
    (tmp_path / "run.sh").write_text("echo")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as error:
        resolve(name, str(tmp_path))
    assert (error.value.exit_code, words in str(error.value)) == (code, True)
