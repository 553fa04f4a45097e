"""Reads manifests from files, from the files of folders, or from stdin."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from convoy.cli.cluster import Failure
from convoy.cli.manifest import InvalidYaml, Manifest, documents, is_convoy_object, parse
from convoy_crds.meta import API_VERSION

STDIN = Path("-")
SUFFIXES = frozenset({".yaml", ".yml", ".json"})

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="YAML files, or folders of YAML files; - for stdin.")
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file; - for stdin.")]


@dataclass(frozen=True)
class Source:
    """The objects of Convoy in one file or from stdin, or the error if the file cannot be read."""

    name: str
    manifests: tuple[Manifest, ...] = ()
    error: str = ""
    others: tuple[dict[str, Any], ...] = ()
    """The objects of other API groups."""


def sources(*paths: Path) -> list[Source]:
    """Read the files, and the files of the folders, at `paths`. Raises Failure if none of them has an object
    of Convoy.
    """
    return [one for one in all_sources(*paths) if one.error or one.manifests]


def all_sources(*paths: Path) -> list[Source]:
    """Read the files as `sources` does. Return those without an object of Convoy too."""
    found = [_read(file) for path in paths for file in _files(path)]
    if not any(one.error or one.manifests for one in found):
        verb = "has" if len(paths) == 1 else "have"
        raise Failure(f"{', '.join(map(str, paths))} {verb} no object with apiVersion {API_VERSION}")
    return found


def _files(path: Path) -> list[Path]:
    if path == STDIN or not path.is_dir():
        return [path]
    return sorted(one for one in path.iterdir() if one.suffix in SUFFIXES)


def _read(path: Path) -> Source:
    name = "stdin" if path == STDIN else str(path)
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text()
        objects = [one for body in documents(text) for one in _items(body)]
    except OSError as error:
        return Source(name, error=error.strerror or str(error))
    except (InvalidYaml, UnicodeDecodeError) as error:
        return Source(name, error=str(error))
    bodies = [one for one in objects if is_convoy_object(one)]
    others = tuple(one for one in objects if not is_convoy_object(one))
    return Source(name, tuple(parse(body, number) for number, body in enumerate(bodies, 1)), others=others)


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a List, as `kubectl get -o yaml` prints it; any other object alone."""
    items = body.get("items")
    if body.get("kind") != "List" or not isinstance(items, list):
        return [body]
    return [one for one in items if isinstance(one, dict)]
