"""Runs buildah on a store of its own, so that the images of the machine's user are not touched."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.errors import CommandError
from e2e.cluster.run import run, stream

_LOG = "buildah.log"


def _command(arguments: list[str | Path]) -> list[str]:
    root = files.cache_root() / "buildah"
    return [
        # Run buildah in its own mount namespace, so that its mounts end with it, even if it is killed.
        "unshare", "--mount", "--fork", "--kill-child", "--",
        "buildah", "--root", str(root / "root"), "--runroot", str(root / "run"), "--storage-driver=overlay",
        *(os.fspath(argument) for argument in arguments),
    ]  # fmt: skip


def build(
    name: str,
    dockerfile: Path,
    context: Path,
    arguments: dict[str, str],
    *,
    target: str = "",
    deadline: float = 1800,
) -> None:
    """Build the image `name` in the local store, or the stage `target` of its Dockerfile.

    Raises CommandError with the end of the build's log.
    """
    options: list[str | Path] = [
        "bud",
        "--isolation=chroot",
        "--pull-never",
        "--layers",
        "--network=host",
        # A failed build would keep its containers, and with them layers that nobody could delete.
        "--force-rm",
    ]
    for key, value in arguments.items():
        options += ["--build-arg", f"{key}={value}"]
    if target:
        options += ["--target", target]
    options += ["--file", dockerfile, "--tag", name, context]
    log = files.cache_root() / "buildah" / _LOG
    log.unlink(missing_ok=True)
    stream(_command(options), deadline=deadline, log=log)


def pull(reference: str, *, deadline: float = 600) -> None:
    """Pull an image into the local store."""
    run(_command(["pull", reference]), deadline=deadline)


def identifier(name: str) -> str | None:
    """Return the id of an image in the local store; None if the store does not have the image."""
    try:
        return run(_command(["inspect", "--type=image", "--format={{.FromImageID}}", name])).strip() or None
    except CommandError:
        return None


def push(name: str, destination: str, *, quickly: bool = False, deadline: float = 900) -> None:
    """Copy an image of the local store to `destination`, written as in containers-transports(5).

    With `quickly`, use the fastest compression, because the destination unpacks the layers anyway.
    """
    packing = ["--compression-format=gzip", "--compression-level=1"] if quickly else []
    run(_command(["push", *packing, name, destination]), deadline=deadline)


def prune() -> None:
    """Delete images that have no name and that no other image needs."""
    run(_command(["rmi", "--prune"]), deadline=300)


def run_in(name: str, command: list[str], *, deadline: float = 300) -> str:
    """Run a command in a new container of an image of the local store. Return the command's output."""
    container = run(_command(["from", "--pull-never", name])).strip()
    try:
        return run(_command(["run", "--isolation=chroot", container, "--", *command]), deadline=deadline)
    finally:
        run(_command(["rm", container]))
