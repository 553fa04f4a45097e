"""Makes the project's virtual environment from the pinned constraints: `python3 -m e2e.setup.environment`.

Runs on the bare system Python; does nothing when what it was made from has not changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

from e2e.setup.torch_source import pip_arguments

WITHOUT_DEPENDENCIES = ("boto3", "botocore", "s3transfer", "jmespath", "moto")
"""botocore asks for an older python-dateutil than kubernetes does, and works with the later one."""
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv"
STAMP = FOLDER / ".made-from"


def made_from() -> str:
    """A digest of all that decides what the environment holds."""
    inputs = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt", __file__)]
    return hashlib.sha256(b"\0".join([*inputs, sys.version.encode(), str(ROOT).encode()])).hexdigest()


def main() -> None:
    """Makes or refreshes .venv; SystemExit with pip's status when that fails."""
    if STAMP.exists() and STAMP.read_text() == made_from():
        print("environment: .venv is up to date", flush=True)
        return
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs before anything is installed
        raise SystemExit(f"Convoy needs Python 3.11 or later, this is {sys.version.split()[0]}")
    started = time.monotonic()
    print(
        "environment: installing the pinned dependencies into .venv (a few minutes the first time)",
        flush=True,
    )
    if not (FOLDER / "bin" / "python").exists():
        venv.create(FOLDER, with_pip=True)
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, *pip_arguments(), "-c", "constraints.txt", "-e", ".[dev]"]
    beside = [*pip, "--no-deps", "-c", "constraints.txt", *WITHOUT_DEPENDENCIES]
    for one in (command, beside):
        done = subprocess.run(one, cwd=ROOT, env=os.environ, check=False, timeout=3000)
        if done.returncode:
            raise SystemExit(done.returncode)
    partial = STAMP.with_suffix(".partial")
    partial.write_text(made_from())
    partial.replace(STAMP)
    print(f"environment: ready after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
