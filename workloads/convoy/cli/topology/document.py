"""Reads and writes InfraGraph files with the package `infragraph`.

A file is JSON or YAML. It holds an infrastructure, or the members `infrastructure` and `annotations`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from pathlib import Path
from typing import Any

import yaml

from convoy.cli.cluster import Failure
from convoy.cli.text_file import read_text
from convoy_controllers.astrasim.parsing.fields import InvalidInput

MOST_BYTES = 16 << 20
"""Size of the largest file."""
MOST_DEPTH = 32
"""Largest number of nested lists and mappings in a YAML file."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> Any:
    """Return the content of a file. Raises Failure if it is too large, or neither JSON nor YAML."""
    text = read_text(path, MOST_BYTES)
    try:
        return _parsed(text)
    except InvalidInput as error:
        raise Failure(f"{path}: {error.message}") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Failure(f"{path}: is neither valid JSON nor valid YAML: {error}") from error


def _parsed(text: str) -> Any:
    # YAML's flow style also begins with a brace.
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            # A few aliases of aliases expand to more nodes than fit into memory.
            raise InvalidInput("file", "may have no YAML aliases")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise InvalidInput("file", f"has more than {MOST_DEPTH} nested lists and mappings")
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader


def check_schema(infrastructure: Any, annotations: Any = None) -> None:
    """Raise InvalidInput if the package finds a value that is not of InfraGraph's schema."""
    package = _package()
    for kind, body in (("Infrastructure", infrastructure), ("Annotation", annotations)):
        if body is not None:
            try:
                getattr(package, kind)().deserialize(body)
            except Exception as error:  # the package raises errors of any kind
                text = " ".join(str(error).split())
                raise InvalidInput(kind.lower(), f"is not of InfraGraph's schema: {text}") from error


def written(infrastructure: Any, annotations: Any) -> str:
    """Return the text of a file."""
    package = _package()
    body = {
        "infrastructure": package.Infrastructure().deserialize(infrastructure).serialize("dict"),
        "annotations": package.Annotation().deserialize(annotations).serialize("dict"),
    }
    return str(yaml.safe_dump(body, sort_keys=False))


def _package() -> Any:
    try:
        return importlib.import_module("infragraph")
    except ImportError as error:
        raise Failure(
            f"InfraGraph files need {error.name}, which is not installed: "
            "pip install '.[infragraph]' in a checkout of Convoy"
        ) from error
