"""Loads images into running nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from e2e.cluster.errors import ClusterError
from e2e.cluster.node import Node
from e2e.cluster.oci import Image, Store
from e2e.cluster.templates import blobs_in

_IMPORT = ("images", "import", "--local", "-")


def load_archive(nodes: Sequence[Node], archive: Path, *, deadline: float = 600) -> None:
    """Import the file of an OCI or Docker archive into every node."""
    if not archive.is_file():
        raise ClusterError(f"no image archive {archive}")

    def load(node: Node) -> None:
        with archive.open("rb") as file:
            node.ctr(*_IMPORT, deadline=deadline, stdin=file)

    _everywhere(load, nodes)


def update(nodes: Sequence[Node], store: Store, images: Sequence[Image], *, deadline: float = 600) -> int:
    """Send images of the store to the nodes that lack them. Return the number of bytes sent.

    Layers that a node already has are not sent.
    """
    sent: list[int] = []

    def load(node: Node) -> None:
        lacking = missing(node, images)
        if not lacking:
            return

        def send(present: set[str]) -> None:
            def write(archive: IO[bytes]) -> None:
                store.write_archive(lacking, archive, present)

            node.ctr(*_IMPORT, deadline=deadline, stdin=write)
            sent.append(store.size(store.lacking(lacking, present)))

        present = blobs_in(node.store)
        try:
            send(present)
        except ClusterError:
            if not present:
                raise
            # The node may have deleted a blob since it listed it as present, so send everything.
            send(set())

    _everywhere(load, nodes)
    return sum(sent)


def missing(node: Node, images: Sequence[Image]) -> list[Image]:
    """Return those of `images` that a running node does not have in the same version."""
    lines = node.ctr("images", "list").splitlines()[1:]
    present = {(words[0], words[2]) for line in lines if len(words := line.split()) > 2}
    return [image for image in images if (image.name, image.digest) not in present]


def _everywhere(load: Callable[[Node], None], nodes: Sequence[Node]) -> None:
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
        for result in [pool.submit(load, node) for node in nodes]:
            result.result()
