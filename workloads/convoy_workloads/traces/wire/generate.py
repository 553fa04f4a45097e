"""Generates the messages of chakra.proto: `python -m convoy_workloads.traces.wire.generate [--check]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from convoy_crds.generated import write_or_check

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROTO = "convoy_workloads/traces/wire/chakra.proto"


def generate() -> dict[Path, str]:
    """Return the generated files by their place in the source tree."""
    from grpc_tools import protoc  # noqa: PLC0415 - only developers have it

    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{ROOT}", f"--python_out={folder}", f"--mypy_out={folder}"]
        if protoc.main([*arguments, f"--plugin=protoc-gen-mypy={plugin}", PROTO]):
            raise SystemExit("protoc failed")
        written = (Path(folder) / PROTO).parent.iterdir()
        return {HERE / path.name: path.read_text() for path in written}


def main() -> None:
    """Write the messages. With --check, compare the files with chakra.proto instead."""
    write_or_check(generate(), "convoy_workloads.traces.wire.generate")


if __name__ == "__main__":
    main()
