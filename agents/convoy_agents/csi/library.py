"""The launcher and the runtime as a pod finds them: plain source files any Python of an image can run."""

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
    """The agent's image lacks the launcher; the message names the file."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the packages lie in the agent's image."""

    workloads: Path
    """The folder of the package convoy_workloads."""
    convoy: Path
    """The folder of the package convoy."""
    commands: Path
    """The folder of the package convoy_commands."""


def installed() -> Sources:
    """Finds them without importing: they are the pods' code. LibraryError when one is missing."""
    return Sources(_folder("convoy_workloads"), _folder("convoy"), _folder("convoy_commands"))


def layout(sources: Sources) -> dict[str, bytes]:
    """Every file of the library by its relative path. LibraryError when a needed one is missing."""
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
    for part in ("launcher", "runtime"):
        for path in sorted((sources.workloads / part).rglob("*.py")):
            files[f"convoy_workloads/{path.relative_to(sources.workloads)}"] = path
    try:
        return {name: path.read_bytes() for name, path in files.items()}
    except FileNotFoundError as error:
        raise LibraryError(f"the agent's image lacks {error.filename}") from error


def prepare(run_dir: Path, sources: Sources) -> Path:
    """Writes the library of this version once; its folder, named after its content. OSError as write(2)."""
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
            # Pods that started with it hold links to its files.
            shutil.rmtree(other, ignore_errors=True)
    return library


def link(library: Path, target: Path) -> None:
    """Gives a pod the library as hard links: no memory, no mount. A file system without links gets copies."""
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
