"""Families of images: each is an image that holds one or more engines.

Image recipes are generated from this list. The chart's values have a repository and a digest for each
family.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One image, a layer over `images/torch.Dockerfile` built by `images/<name>.Dockerfile`."""

    name: str
    extra: str
    """The optional dependencies in pyproject.toml that the image installs."""

    @property
    def repository(self) -> str:
        """The image's repository, unless the chart's values name another."""
        return f"convoy/{self.name}"


FAMILIES: tuple[Family, ...] = (
    Family("workloads", extra="workloads"),
)  # fmt: skip
