"""MLCommons' own package of Chakra in a virtual environment of its own.

The environment has the package and protobuf alone: its reader, generator and JSON writer need nothing else.
`CONVOY_CHAKRA_PYTHON` names the interpreter of another environment with the package.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.cluster.errors import CommandError
from e2e.cluster.run import run

PACKAGE = "mlc-chakra==1.0.0"
ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "chakra-venv"
INSTALL_SECONDS = 600.0
RUN_SECONDS = 300.0


class PackageError(RuntimeError):
    """Raised if the package cannot be installed or fails. The message names the cause."""


class ChakraPackage:
    """The package behind an interpreter."""

    def __init__(self, python: Path) -> None:
        self._python = python

    @classmethod
    def installed(cls) -> ChakraPackage:
        """Return the package; install it if it is not there. Raises PackageError if this fails."""
        named = os.environ.get("CONVOY_CHAKRA_PYTHON")
        if named:
            return cls(Path(named))
        python, ready = FOLDER / "bin" / "python", FOLDER / f".{PACKAGE}"
        if not ready.exists():
            try:
                venv.create(FOLDER, with_pip=True, clear=True)
                pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
                run([*pip, "--no-deps", PACKAGE, "protobuf"], deadline=INSTALL_SECONDS)
            except (CommandError, OSError, subprocess.CalledProcessError) as error:
                raise PackageError(f"{PACKAGE} cannot be installed: {error}") from error
            ready.touch()
        return cls(python)

    def version(self) -> str:
        """Return the name and the version of the package."""
        code = "from importlib.metadata import version; print(version('mlc-chakra'))"
        return f"mlc-chakra {self._run(['-c', code]).strip()}"

    def read(self, path: Path) -> dict[str, Any]:
        """Return what the package's reader finds in a file: the number of nodes, those with a duration, the
        number of collectives, and their bytes.
        """
        found: dict[str, Any] = json.loads(self._run(["-c", _READ, str(path)]))
        return found

    def as_json(self, path: Path, out: Path) -> int:
        """Write the file as JSON with the package's own tool. Return the number of nodes in it."""
        words = ["--input_filename", str(path), "--output_filename", str(out)]
        self._run(["-m", "chakra.src.jsonizer.jsonizer", *words])
        decoder, text, place, count = json.JSONDecoder(), out.read_text(), 0, 0
        while place < len(text):
            _, place = decoder.raw_decode(text, place)
            count += 1
        return count - 1

    def generate(self, folder: Path, ranks: int, size: int, runtime: int) -> list[Path]:
        """Let the package's own generator write its workloads into a folder. Return the files."""
        folder.mkdir(parents=True)
        sizes = ["--default_tensor_size", str(size), "--default_comm_size", str(size)]
        words = ["--num_npus", str(ranks), *sizes, "--default_runtime", str(runtime)]
        self._run(["-m", "chakra.src.generator.generator", *words], cwd=folder)
        return sorted(folder.glob("*.et"))

    def _run(self, words: Sequence[str], cwd: Path | None = None) -> str:
        try:
            return run([self._python, *words], deadline=RUN_SECONDS, cwd=cwd)
        except CommandError as error:
            raise PackageError(str(error)) from error


_READ = """
import json, sys
from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node, COMM_COLL_NODE
from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd
file = openFileRd(sys.argv[1])
assert decodeMessage(file, GlobalMetadata())
found = {"nodes": 0, "durations": 0, "collectives": 0, "bytes": 0}
node = Node()
while decodeMessage(file, node):
    found["nodes"] += 1
    found["durations"] += node.duration_micros > 0
    values = {one.name: one for one in node.attr}
    if node.type == COMM_COLL_NODE:
        found["collectives"] += 1
        found["bytes"] += values["comm_size"].int64_val
    node = Node()
print(json.dumps(found))
"""
