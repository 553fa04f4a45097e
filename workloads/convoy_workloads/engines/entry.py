"""The declaration of an engine.

Every rank loads this module, so it imports only the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of the engine's own, reported by `job.report(step, metrics={name: value})`."""

    name: str
    unit: str = ""
    """Base unit: `seconds`, `bytes`, `ratio`; empty for a plain count."""
    help: str = ""


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """One engine. Its package has the modules `params` (with `Params`), `engine` and `bench` (with
    `BENCH`).

    The engine's folder also holds README.md, which becomes the engine's page, and the example.
    """

    package: str
    """`__name__` of the engine's package."""
    description: str
    """One sentence: the task that the engine trains or serves, and its method."""
    role_kind: Literal["Training", "Serving"]
    family: str
    """The family of images that holds the engine (`families.py`)."""
    example: str
    """File name of a manifest in the engine's folder, which is copied to `examples/`."""
    small: Mapping[str, Any] = field(default_factory=dict)
    """Parameters with which a few ranks finish within a second, for tests."""
    metrics: tuple[Metric, ...] = ()
    paper: str = ""
    """Publication of the engine's method, as title and address; empty if the method is Convoy's own."""

    @property
    def name(self) -> str:
        """The Engine's name: the folder's name with dashes."""
        return self.package.rpartition(".")[2].replace("_", "-")

    @property
    def folder(self) -> Path:
        """The engine's folder."""
        file = import_module(self.package).__file__
        if file is None:
            raise ImportError(f"{self.package} has no __init__.py")
        return Path(file).parent

    def module(self, name: str) -> ModuleType:
        """Import a module of the engine's package."""
        return import_module(f"{self.package}.{name}")
