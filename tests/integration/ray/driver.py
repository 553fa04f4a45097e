"""A driver program in a machine, spoken to in lines of JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.ray import nodes

HERE = Path(__file__).parent


class Driver:
    def __init__(
        self, machine: nodes.Machine, program: str, log: Path, *words: str | Path, **environment: str
    ) -> None:
        self._log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                machine.inside(nodes.python(HERE / program, *words)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=nodes.environ(**environment),
                text=True,
            )
        machine.programs.append(self.process)

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # Ray prints lines of its own.
        line = next((one for one in self.process.stdout if one.startswith("{")), "")
        assert line, self._log.read_text()[-3000:]
        found: dict[str, Any] = json.loads(line)
        return found

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("{}\n")
        self.process.stdin.flush()


def key(folder: Path, name: str, digit: str) -> str:
    path = folder / name
    path.write_text(digit * 64 + "\n")
    return str(path)
