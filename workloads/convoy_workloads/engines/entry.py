"""The declaration of an engine that comes with Convoy.

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
    """A metric that only this engine has. The engine reports it by `job.report(step, metrics={name:
    value})`.
    """

    name: str
    unit: str = ""
    """Base unit, such as `seconds`, `bytes` or `ratio`; empty for a plain count."""
    help: str = ""
    always: bool = True
    """False if the engine reports it with some parameters only."""


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """One engine. The engine's package has the modules `params` (with the class `Params`) and `engine`. It
    also has `bench` (with `BENCH`), unless the engine is a tool.

    The engine's folder also has the file README.md, which becomes the engine's page, and the example
    manifest.
    """

    package: str
    """Name (`__name__`) of the engine's package."""
    description: str
    """One sentence with the task that the engine trains or serves, and its method."""
    role_kind: Literal["Training", "Serving"]
    family: str
    """Name of the image family whose image contains the engine (`families.py`)."""
    example: str
    """File name of the example manifest in the engine's folder. The manifest is copied to `examples/`."""
    small: Mapping[str, Any] = field(default_factory=dict)
    """Parameters with which a few ranks finish within a second. Tests use them."""
    metrics: tuple[Metric, ...] = ()
    replica_peers: bool = False
    """True if the replicas of a ServingJob talk to each other. The engine then is a `PeersListener`
    (serving/extensions.py).
    """
    internal: bool = False
    """True if Convoy itself adds the engine's pods to jobs, so that no job may name the engine."""
    tool: bool = False
    """True if the engine does work for Convoy's other features, so that there is nothing to compare it with.
    Such an engine has no bench, and its small parameters need no `steps`.
    """
    paper: str = ""
    """Title and address of the publication of the engine's method; empty if the method is Convoy's own."""

    @property
    def name(self) -> str:
        """Return the Engine's name: the name of the folder, with dashes instead of underscores."""
        return self.package.rpartition(".")[2].replace("_", "-")

    @property
    def folder(self) -> Path:
        """Return the folder of the engine's package."""
        file = import_module(self.package).__file__
        if file is None:
            raise ImportError(f"{self.package} has no __init__.py")
        return Path(file).parent

    def module(self, name: str) -> ModuleType:
        """Import a module of the engine's package and return it."""
        return import_module(f"{self.package}.{name}")
