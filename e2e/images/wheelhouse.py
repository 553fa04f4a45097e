"""Builds wheels of all requirements of an image on this machine, so that image builds need no network."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, stream
from e2e.setup.torch_source import no_cpu_build, pip_arguments

PYTHON = "3.11"
PYTHON_TAG = "cp311"
BACKEND = "hatchling>=1.27"


def digest(parts: Iterable[str | bytes]) -> str:
    """Return the first 16 hexadecimal digits of a SHA-256 digest over all parts."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:16]


def dependencies(requirements: Sequence[str], progress: Progress) -> tuple[str, Path]:
    """Return (key, folder) of the wheels for these requirements and pip, at the versions in
    constraints.txt.

    The folder's `requirements.txt` lists what to install. Raises ClusterError if torch is required but no
    source has its build for CPUs. With CONVOY_CUDA=1, the build with CUDA is used instead.
    """
    constraints = files.CHECKOUT / "constraints.txt"
    pins = constraints.read_text() if constraints.exists() else ""
    needs_torch = any(re.match(r"torch\b", one) for one in requirements)
    sources = pip_arguments(PYTHON_TAG) if needs_torch else []
    if needs_torch and not sources:
        raise ClusterError(no_cpu_build(PYTHON_TAG))
    key = digest([PYTHON, *requirements, pins, *sources])
    final = files.cache_root() / "wheelhouses" / key
    with files.locked(final.parent / ".lock", deadline=1800, what="the wheelhouses"):
        if not final.exists():
            with (
                progress.long(f"fetching wheels for {', '.join(requirements)}"),
                files.building(final) as folder,
            ):
                _fetch(requirements, constraints, folder, sources)
                files.write(folder / "requirements.txt", "\n".join(requirements) + "\n")
        os.utime(final)
        _keep_newest(final.parent, 12)
    return key, final


def _fetch(requirements: Sequence[str], constraints: Path, folder: Path, sources: Sequence[str]) -> None:
    arguments = [*sources, *requirements]
    if constraints.exists():
        arguments += ["--constraint", str(constraints)]
    if sys.version_info[:2] == tuple(map(int, PYTHON.split("."))):
        command = ["wheel", "--wheel-dir", str(folder)]
    else:
        # This Python's version is not that of the images, so it cannot build their wheels. Download built
        # wheels only.
        command = ["download", "--dest", str(folder), "--only-binary=:all:", f"--python-version={PYTHON}"]
    log = files.cache_root() / "wheelhouses" / "pip.log"
    stream([sys.executable, "-m", "pip", *command, "pip", *arguments], deadline=1800, log=log)


def own_sources() -> tuple[str, list[Path]]:
    """Return (key, paths) of the files from which our own wheel is built."""
    project = tomllib.loads((files.CHECKOUT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    found = [files.CHECKOUT / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    for package in packages:
        for path in sorted((files.CHECKOUT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                found.append(path)
    found = [path for path in found if path.exists()]
    parts: list[str | bytes] = []
    for path in found:
        parts += [str(path.relative_to(files.CHECKOUT)), path.read_bytes()]
    return digest(parts), found


def own(progress: Progress) -> tuple[str, Path]:
    """Return (key, folder) of the wheel of our own distribution."""
    key, _ = own_sources()
    final = files.cache_root() / "dist" / key
    with files.locked(final.parent / ".lock", deadline=600, what="our own wheel"):
        if not final.exists():
            backend = _backend()
            with files.building(final) as folder:
                progress.report("building our own wheel")
                run(
                    [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
                     "--wheel-dir", folder, files.CHECKOUT],
                    deadline=300,
                    # A fixed date makes the wheel the same for the same source, bit for bit.
                    env={"PYTHONPATH": str(backend), "SOURCE_DATE_EPOCH": "1577836800"},
                )  # fmt: skip
        os.utime(final)
        _keep_newest(final.parent, 5)
    return key, final


def _keep_newest(parent: Path, count: int) -> None:
    folders = [path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for stale in sorted(folders, key=lambda path: path.stat().st_mtime)[:-count]:
        shutil.rmtree(stale, ignore_errors=True)


def _backend() -> Path:
    """Return a folder with the build backend. It stays in the cache, so only the first build needs a
    network.
    """
    final = files.cache_root() / f"backend-{digest([BACKEND, sys.version])}"
    if not final.exists():
        with files.building(final) as folder:
            run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, BACKEND], deadline=300
            )
    return final
