"""The library that pods run: the launcher, the runtime, and what `convoy.data`, `convoy.optim` and
`convoy.federated` need, as plain source files, for any Python in a pod's image.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

ENTRY = "convoy_launch.py"
PREFIX = "lib-"


class LibraryError(Exception):
    """The agent's image lacks a file or package of the library. The message names what is missing."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The folders of the packages in the agent's image."""

    workloads: Path
    """The folder of the package convoy_workloads."""
    convoy: Path
    """The folder of the package convoy."""
    commands: Path
    """The folder of the package convoy_commands."""


def installed() -> Sources:
    """Return the folders of the packages. They are found without an import, since their code is meant for
    pods.

    Raises LibraryError if a package is missing.
    """
    return Sources(_folder("convoy_workloads"), _folder("convoy"), _folder("convoy_commands"))


def layout(sources: Sources) -> dict[str, bytes]:
    """Return the content of every file of the library, by relative path. Raises LibraryError if a file is
    missing.
    """
    files = {
        ENTRY: sources.workloads / "launcher" / ENTRY,
        "convoy_workloads/__init__.py": sources.workloads / "__init__.py",
        "convoy/__init__.py": sources.convoy / "__init__.py",
        "convoy_commands/__init__.py": sources.commands / "__init__.py",
    }
    for path in sorted(sources.commands.glob("*.py")):
        files[f"convoy_commands/{path.name}"] = path
    for path in sorted(sources.convoy.glob("*.py")):
        files[f"convoy/{path.name}"] = path
    for part in ("launcher", "runtime", "traces", "packing", "data", "comm", "optim", "federated"):
        for path in sorted((sources.workloads / part).rglob("*.py")):
            files[f"convoy_workloads/{path.relative_to(sources.workloads)}"] = path
    try:
        return {name: path.read_bytes() for name, path in files.items()}
    except FileNotFoundError as error:
        raise LibraryError(f"the agent's image lacks {error.filename}") from error


def prepare(run_dir: Path, sources: Sources) -> Path:
    """Write the library unless it exists, and remove other versions of it. Return the library's folder,
    whose name contains a digest of the content.

    Raises the OSError of write(2).
    """
    files = layout(sources)
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    library = run_dir / f"{PREFIX}{digest.hexdigest()[:12]}"
    if not library.is_dir():
        fresh = run_dir / f"{library.name}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o444)
        for folder in (fresh, *(path for path in fresh.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        fresh.rename(library)
    for other in run_dir.glob(f"{PREFIX}*"):
        if other != library:
            # Other versions can be removed: pods that started with one keep hard links to its files.
            shutil.rmtree(other, ignore_errors=True)
    return library


def link(library: Path, target: Path) -> None:
    """Create hard links to the library's files in a pod's folder. Unlike copies, hard links take no memory,
    and unlike a mount, they need no later unmount.

    The files are copied if the file system has no hard links.
    """
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(library, fresh, copy_function=_link_or_copy)
    fresh.rename(target)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise LibraryError(f"the agent's image lacks the package {package}")
    return Path(spec.submodule_search_locations[0])
