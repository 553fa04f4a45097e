"""The families of images that hold engines.

Image recipes are made from this list. The chart's values have a repository and a digest for each of them.
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
        """The image's repository unless the chart's values name another."""
        return f"convoy/{self.name}"


FAMILIES: tuple[Family, ...] = (
    Family("workloads", extra="workloads"),
)  # fmt: skip
