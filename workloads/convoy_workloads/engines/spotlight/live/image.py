"""The code and the libraries of a pod's image, as far as they decide about the bits of a sample.

All pods of a job need the same ones: a sample that another worker resumes must have the same bits, and the
trainer compares the log-probabilities of the workers with its own.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import convoy_workloads

LIBRARIES = ("numpy", "torch")
FOLDERS = ("engines/spotlight", "spot")


class OtherImage(RuntimeError):
    """A worker's image differs from the trainer's."""


@dataclass(frozen=True)
class Image:
    """The code and the libraries that decide about the bits of a sample."""

    code: str
    """Digest of the engine's source files."""
    libraries: dict[str, str] = field(default_factory=dict)
    """Version of each library."""


@functools.cache
def own_image() -> Image:
    """Return the image of this process."""
    root = Path(convoy_workloads.__file__).parent
    total = hashlib.sha256()
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return Image(total.hexdigest()[:16], {name: version(name) for name in LIBRARIES})


def check_image(wanted: Image) -> None:
    """Raise OtherImage if this process has another image than the trainer, whose image is `wanted`."""
    own = own_image()
    found = [
        f"{name} {own.libraries.get(name)} instead of {known}"
        for name, known in wanted.libraries.items()
        if own.libraries.get(name) != known
    ]
    if own.code != wanted.code:
        found.append("other source files of the engine")
    if found:
        raise OtherImage(
            f"the worker's image differs from the trainer's: {', '.join(found)}. Use one image for all roles"
        )
