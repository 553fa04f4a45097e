"""Image families. A family is one image that contains one or more engines.

Image recipes are generated from this list. The chart's values contain a repository and a digest for each
family.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One image. `images/<name>.Dockerfile` builds it as a layer over `images/torch.Dockerfile`."""

    name: str
    extra: str
    """Name of the group of optional dependencies in pyproject.toml that the image installs."""
    kernels: bool = False
    """True if the image contains compiled kernels."""

    @property
    def repository(self) -> str:
        """Return the default repository of the image. The chart's values may set another repository."""
        return f"convoy/{self.name}"


FAMILIES: tuple[Family, ...] = (
    Family("workloads", extra="workloads"),
    Family("serving", extra="serving", kernels=True),
    Family("sklearn", extra="sklearn"),
    Family("tools", extra="tools"),
    Family("ray", extra="ray"),
)  # fmt: skip
