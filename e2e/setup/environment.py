"""Creation of a virtual environment with the pinned dependencies: `python3 -m e2e.setup.environment [docs]`.

`.venv` is the project's environment. `.venv-docs` is that of the documentation and contains nothing of the
project. The module runs on the bare system Python, and does nothing if its inputs have not changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

from e2e.setup.torch_source import pip_arguments

WITHOUT_DEPENDENCIES = ("boto3", "botocore", "s3transfer", "jmespath", "moto")
"""Packages installed without dependencies: botocore requires an older python-dateutil than kubernetes does,
but works with the newer one.
"""
ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / ".venv"
DOCS = ROOT / ".venv-docs"
STAMP = ".made-from"


def inputs_digest() -> str:
    """Return the digest of everything that determines the environment's contents."""
    inputs = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt", __file__)]
    return hashlib.sha256(b"\0".join([*inputs, sys.version.encode(), str(ROOT).encode()])).hexdigest()


def requirements(extra: str) -> list[str]:
    """Return the requirements of an extra in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"][extra])


def main() -> None:
    """Create or update the environment. Raise SystemExit with pip's exit status if pip fails."""
    folder = DOCS if sys.argv[1:] == ["docs"] else OWN
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == inputs_digest():
        print(f"environment: {folder.name} is up to date", flush=True)
        return
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs before anything is installed
        raise SystemExit(f"Convoy needs Python 3.11 or later, this is {sys.version.split()[0]}")
    started = time.monotonic()
    print(
        f"environment: installing the pinned dependencies into {folder.name} (minutes the first time)",
        flush=True,
    )
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = [*pip, "-c", "constraints.txt"]
    own = [*pip, *pip_arguments(), "-c", "constraints.txt", "-e", ".[dev]"]
    without_dependencies = [*pinned, "--no-deps", *WITHOUT_DEPENDENCIES]
    commands = [[*pinned, *requirements("docs")]] if folder is DOCS else [own, without_dependencies]
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, env=os.environ, check=False, timeout=3000)
        if done.returncode:
            raise SystemExit(done.returncode)
    partial = stamp.with_suffix(".partial")
    partial.write_text(inputs_digest())
    partial.replace(stamp)
    print(f"environment: ready after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
