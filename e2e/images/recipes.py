"""List of the images and their contents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_workloads.engines.families import FAMILIES
from e2e.cluster.errors import ClusterError


@dataclass(frozen=True)
class Recipe:
    """An image `convoy/<name>`. It is built by `images/<name>.Dockerfile` on `parent`, or else on the base
    image.
    """

    name: str
    extra: str
    """Extra in pyproject.toml whose dependencies the image needs."""
    parent: str | None = None
    only: tuple[str, ...] = ()
    """If not empty, the image has only these dependencies of the extra, and no code of Convoy."""
    kernels: bool = False
    """True if the Dockerfile has a stage `kernels`, which compiles the kernels."""

    @property
    def own_code(self) -> bool:
        """True if the image contains Convoy's distribution."""
        return not self.only

    def reference(self, tag: str) -> str:
        """Return the image's name with its tag, as a pod uses it."""
        return f"convoy/{self.name}:{tag}"


# Images in build order: a parent comes before its children.
RECIPES = (
    Recipe("operator", "operator"),
    Recipe("agent", "agents"),
    Recipe("dashboard", "dashboard"),
    Recipe("torch", "workloads", only=("torch", "numpy")),
    *(Recipe(family.name, family.extra, parent="torch", kernels=family.kernels) for family in FAMILIES),
)


def chart_values(prefix: str, tag: str) -> str:
    """Return helm's flags to install the chart with images that were pushed as `<prefix>/<image>:<tag>`."""
    registry, _, folder = prefix.rstrip("/").rpartition("/")
    flags = [f"--set images.registry={registry or folder}", f"--set images.tag={tag}"]
    if not registry or folder != "convoy":
        below = f"{folder}/" if registry else ""
        names = ["operator", "agent", *(family.name for family in FAMILIES)]
        flags += [f"--set images.{name}={below}{name}" for name in names]
        flags.append(f"--set dashboard.image={below}dashboard")
    return " ".join(flags)


def distribution(requirement: str) -> str:
    """Return the normalised package name in a requirement such as `Jinja2>=3; python_version > "3"`."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    if not match:
        raise ClusterError(f"cannot read the requirement {requirement!r} in pyproject.toml")
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def requirements(project: Mapping[str, Any], extra: str) -> list[str]:
    """Return all requirements of a pyproject.toml with this extra. An extra may name other extras."""
    extras: Mapping[str, Sequence[str]] = project.get("optional-dependencies", {})
    own = distribution(project["name"])
    found: dict[str, None] = dict.fromkeys(project.get("dependencies", ()))
    queue, seen = [extra], set()
    while queue:
        name = queue.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name not in extras:
            raise ClusterError(f"pyproject.toml has no extra {name!r}; it has: {', '.join(extras)}")
        for requirement in extras[name]:
            inner = re.search(r"\[([^\]]*)\]", requirement)
            if distribution(requirement) == own and inner:
                queue += [one.strip() for one in inner[1].split(",")]
            else:
                found[requirement] = None
    return sorted(found)


def wanted(recipe: Recipe, project: Mapping[str, Any]) -> list[str]:
    """Return the requirements that are installed in an image before Convoy's own code."""
    found = requirements(project, recipe.extra)
    if recipe.only:
        found = [one for one in found if distribution(one) in recipe.only]
        if len(found) < len(recipe.only):
            wishes = " and ".join(recipe.only)
            raise ClusterError(f"the extra {recipe.extra!r} of pyproject.toml does not contain {wishes}")
    return found
