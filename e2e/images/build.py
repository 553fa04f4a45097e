"""Builds the images whose inputs have changed, and adds them to the local cluster's image store."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from e2e.cluster import files
from e2e.cluster.errors import ClusterError
from e2e.cluster.oci import Store
from e2e.cluster.progress import Progress
from e2e.images import base, buildah, wheelhouse
from e2e.images.recipes import RECIPES, Recipe, wanted
from e2e.setup.torch_source import wants_cuda

DOCKERFILES = files.CHECKOUT / "images"
CONTEXTS = files.CHECKOUT / "build" / "images"
MAX_MB = 1800.0
"""Maximum total size of an image's layers, in MB. With CONVOY_CUDA=1 there is no limit."""
COMPILED_BY = tuple(f"convoy_workloads/kernels/{name}.py" for name in ("build", "instruction_sets"))
"""Modules that decide how the kernels are compiled."""


class Builder:
    """Builds this checkout's images. All images get the same tag."""

    def __init__(
        self, tag: str = "dev", *, progress: Progress | None = None, store: Store | None = None
    ) -> None:
        self.tag = tag
        self.progress = progress or Progress()
        self.store = store or Store()
        self._made_from = self.store.folder / f"made-from-{self.store.scope}.json"
        project: dict[str, Any] = tomllib.loads((files.CHECKOUT / "pyproject.toml").read_text())
        self._project = project["project"]

    def build(self, names: Sequence[str] = ()) -> list[str]:
        """Build these images (default: all) and their parents. Return the references that changed.

        Raises ClusterError if an image is larger than MAX_MB, unless CONVOY_CUDA=1.
        """
        recipes = self._chosen(names)
        changed = []
        with files.locked(self.store.folder / ".build.lock", deadline=3600, what="image builds"):
            base_image = base.ensure(self.progress)
            # The checkout may be edited during the build, so build our wheel once for all images.
            own = (
                wheelhouse.own(self.progress)
                if any(recipe.own_code for recipe in recipes)
                else ("none", None)
            )
            for recipe in recipes:
                if self._build(recipe, base_image, own):
                    changed.append(recipe.reference(self.tag))
            if changed:
                with self.store.lock():
                    self.store.prune()
                buildah.prune()
        if not wants_cuda():
            check_sizes(self.store, [recipe.reference(self.tag) for recipe in recipes])
        self.progress.report(f"{len(changed)} of {len(recipes)} images changed")
        return changed

    def push(self, prefix: str, names: Sequence[str] = ()) -> list[str]:
        """Push built images to a registry as `<prefix>/<image>:<tag>`. Return these addresses."""
        pushed = []
        for recipe in self._chosen(names):
            destination = f"{prefix.rstrip('/')}/{recipe.name}:{self.tag}"
            with self.progress.long(f"pushing {destination}"):
                buildah.push(self._local(recipe), f"docker://{destination}")
            pushed.append(destination)
        return pushed

    def _chosen(self, names: Sequence[str]) -> list[Recipe]:
        known = {recipe.name: recipe for recipe in RECIPES}
        if unknown := set(names) - set(known):
            raise ClusterError(f"no image {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        needed = set(names or known)
        needed |= {parent for name in needed if (parent := known[name].parent)}
        return [recipe for recipe in RECIPES if recipe.name in needed]

    def _local(self, recipe: Recipe, stage: str = "") -> str:
        """Return the image's name in buildah's store. All checkouts share this store."""
        return f"localhost/{self.store.scope}/{recipe.name}{stage}:{self.tag}"

    def _build(self, recipe: Recipe, base_image: str, own: tuple[str, Path | None]) -> bool:
        dockerfile = DOCKERFILES / f"{recipe.name}.Dockerfile"
        dependencies, wheels = wheelhouse.dependencies(wanted(recipe, self._project), self.progress)
        source, dist = own if recipe.own_code else ("none", None)
        parent = (
            self._local(next(one for one in RECIPES if one.name == recipe.parent))
            if recipe.parent
            else base_image
        )
        reference = recipe.reference(self.tag)
        compiling = compiling_arguments(base_image, dist) if recipe.kernels and dist else {}
        inputs = wheelhouse.digest(
            [
                dockerfile.read_bytes(),
                dependencies,
                source,
                buildah.identifier(parent) or "missing",
                *compiling.values(),
            ]
        )
        if self._known().get(reference) == inputs and self.store.has(reference):
            return False
        context = self._context(recipe, wheels, dist)
        arguments = {"BASE": parent, "DEPENDENCIES": dependencies, "SOURCE": source, **compiling}
        if not recipe.own_code:
            del arguments["SOURCE"]
        with self.progress.long(f"building {reference}"):
            # If the following steps are interrupted, buildah's store and the cluster's store may have
            # different images. So first remove the record that this image is up to date.
            self._enter({name: made for name, made in self._known().items() if name != reference})
            if compiling:
                # A name keeps the stage in the store, so that the next build does not compile again.
                stage = self._local(recipe, "-kernels")
                buildah.build(stage, dockerfile, context, arguments, target="kernels")
            buildah.build(self._local(recipe), dockerfile, context, arguments)
            with self.store.lock():
                self.store.create()
                tag = self.store.tag(reference)
                buildah.push(self._local(recipe), f"oci:{self.store.layout}:{tag}", quickly=True)
                image = self.store.enter(reference)
        self.progress.report(f"{reference}: {self.store.bytes_of(image) / 1e6:.0f} MB, {image.digest[:19]}")
        self._enter(self._known() | {reference: inputs})
        return True

    def _known(self) -> dict[str, str]:
        try:
            known: dict[str, str] = json.loads(self._made_from.read_text())
        except FileNotFoundError:
            return {}
        return known

    def _enter(self, known: dict[str, str]) -> None:
        files.write(self._made_from, json.dumps(known, indent=1) + "\n")

    def _context(self, recipe: Recipe, wheels: Path, dist: Path | None) -> Path:
        """Create and return the folder that the Dockerfile mounts. Other build tools can use the folder
        too.
        """
        context = CONTEXTS / recipe.name
        with files.building(context) as folder:
            for source, name in ((wheels, "wheelhouse"), (dist, "dist")):
                if source:
                    shutil.copytree(source, folder / name, copy_function=_link_or_copy)
        return context


def compiling_arguments(base_image: str, dist: Path) -> dict[str, str]:
    """Return the build arguments of a stage that compiles the kernels of our wheel on the base image.

    Raises ClusterError if the stand-in has no mirror from which it could get a compiler.
    """
    mirror = base.mirror() if base_image == base.STAND_IN else []
    if base_image == base.STAND_IN and not mirror:
        raise ClusterError("apt on this machine names no mirror, or did not answer: run it again")
    return {
        "PYTHON_IMAGE": base_image,
        "MIRROR": "".join(mirror),
        "KERNELS": kernel_sources(dist),
    }


def kernel_sources(dist: Path) -> str:
    """Return the digest of what the kernels' libraries are made from in our wheel.

    The checkout may be edited during the build, so its files may not be those of the wheel.
    """
    parts: list[str | bytes] = []
    for wheel in sorted(dist.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if name.startswith("convoy_workloads/kernels/sources/") or name in COMPILED_BY:
                    parts += [name, archive.read(name)]
    return wheelhouse.digest(parts)


def check_sizes(store: Store, references: Iterable[str], max_mb: float = MAX_MB) -> None:
    """Raise a ClusterError that lists the images larger than `max_mb`, if there are any."""
    sizes = {reference: store.bytes_of(store.get(reference)) / 1e6 for reference in references}
    large = [f"{reference} has {size:,.0f} MB" for reference, size in sizes.items() if size > max_mb]
    if large:
        raise ClusterError(
            f"{', '.join(large)}: the limit is {max_mb:,.0f} MB."
            " Remove a dependency from the image, or set CONVOY_CUDA=1 if it must contain CUDA"
        )


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
