"""Generates the gRPC stubs of the .proto files: `python -m convoy_agents.wire.generate [--check]`."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGE = "convoy_agents/wire"


def generate(out: Path) -> None:
    """Write the stubs of every .proto file in this folder to `out/convoy_agents/wire`."""
    from grpc_tools import protoc  # noqa: PLC0415 - only developers have it

    protos = [f"{PACKAGE}/{path.name}" for path in sorted(HERE.glob("*.proto"))]
    bundled = str(files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{ROOT}", f"-I{bundled}", f"--python_out={out}", f"--grpc_python_out={out}"]
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    if protoc.main([*arguments, f"--plugin=protoc-gen-mypy={plugin}", f"--mypy_out={out}", *protos]):
        raise SystemExit("protoc failed")


def main() -> None:
    """Write the stubs next to the .proto files. With --check, compare the existing stubs instead and fail
    if they are outdated.
    """
    if "--check" not in sys.argv[1:]:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = [
            path.name
            for path in sorted((Path(folder) / PACKAGE).iterdir())
            if not (HERE / path.name).exists() or (HERE / path.name).read_text() != path.read_text()
        ]
    if stale:
        raise SystemExit(f"stale stubs, run python -m convoy_agents.wire.generate: {', '.join(stale)}")


if __name__ == "__main__":
    main()
