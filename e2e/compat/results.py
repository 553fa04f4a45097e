"""The file docs/bench/compat.json: results of the tests on each minor version of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from e2e.cluster import files

FILE = files.CHECKOUT / "docs" / "bench" / "compat.json"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LayerResult(_Record):
    """The result of one layer's tests in one run."""

    commit: str
    date: str
    seconds: int
    passed: int
    skipped: int
    failed: tuple[str, ...] = ()
    """Failed tests as `MODULE::TEST`."""

    @property
    def good(self) -> bool:
        """True if tests ran and none of them failed."""
        return self.passed > 0 and not self.failed


class Minor(_Record):
    """The newest results on one minor version of Kubernetes."""

    minor: str
    kubernetes: str
    etcd: str
    containerd: str
    cgroup: int
    """Version of the machine's control groups."""
    layers: dict[str, LayerResult] = {}
    mended: tuple[str, ...] = ()
    """Changes to Convoy that this version needed. They are written by hand, and a run keeps them."""

    def passed(self, layers: Iterable[str]) -> bool:
        """Return True if each of these layers ran and none of their tests failed."""
        return all(name in self.layers and self.layers[name].good for name in layers)


class Document(_Record):
    """The contents of the file."""

    name: str = "compat"
    command: str = "make compat MINOR=..."
    machine: str = ""
    minors: tuple[Minor, ...] = ()
    """Results by minor version, the oldest version first."""

    def of(self, minor: str) -> Minor | None:
        """Return the results on a minor version, or None if it was never tested."""
        return next((one for one in self.minors if one.minor == minor), None)

    def having(self, changed: Minor) -> Document:
        """Return the document with `changed` as the results on its minor version."""
        others = [one for one in self.minors if one.minor != changed.minor]
        ordered = sorted([*others, changed], key=lambda one: [int(part) for part in one.minor.split(".")])
        return self.model_copy(update={"minors": tuple(ordered)})


def read(path: Path = FILE) -> Document:
    """Return the contents of the file, or an empty document if it does not exist."""
    return Document.model_validate_json(path.read_text()) if path.exists() else Document()


def write(document: Document, path: Path = FILE) -> None:
    """Replace the file."""
    files.write(path, document.model_dump_json(indent=2) + "\n")
