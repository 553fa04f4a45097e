"""Prepared container stores. Images are imported and unpacked once, and all nodes share the result.

The nodes share the unchanging parts of a template: blobs by hard links, unpacked layers by symbolic links.
A node's store is therefore ready at once, costs no disk space, and its files are only once in the page
cache. Each node has its own copy of the databases.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from e2e.cluster import files
from e2e.cluster.errors import ClusterError
from e2e.cluster.oci import Image, Store
from e2e.cluster.processes import MARK
from e2e.cluster.run import run, tail, wait_for

CONTENT = "io.containerd.content.v1.content"
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs"
METADATA = "io.containerd.metadata.v1.bolt"
_BLOBS, _LAYERS = f"{CONTENT}/blobs", f"{SNAPSHOTS}/snapshots"
_COPIED = (f"{SNAPSHOTS}/metadata.db", f"{METADATA}/meta.db")
_KEEP = 3

CONFIG = """version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri",
]

[grpc]
address = "{folder}/socket"

[ttrpc]
address = "{folder}/socket.ttrpc"
"""


def blobs_in(store: Path) -> set[str]:
    """Return the digests of all blobs in a containerd store."""
    folder = store / CONTENT / "blobs" / "sha256"
    return {f"sha256:{path.name}" for path in folder.iterdir()} if folder.is_dir() else set()


def copy_into(template: Path, target: Path, identity: str) -> None:
    """Fill a node's store `target` from `template`. The template must exist as long as the store.

    Raises ClusterError unless both are on the same file system.
    """
    _copy(template, target, identity, [_BLOBS])
    (target / _LAYERS).mkdir(parents=True)
    for layer in (template / _LAYERS).iterdir():
        (target / _LAYERS / layer.name).symlink_to(layer)


def _copy(source: Path, target: Path, identity: str, linked: Sequence[str]) -> None:
    mark = {MARK: identity}
    for part in linked:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "-al", source / part, target / part], deadline=120, env=mark)
    for part in _COPIED:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "-a", "--reflink=auto", source / part, target / part], deadline=60, env=mark)


@dataclass(frozen=True)
class TemplateBuilder:
    """Paths and identity with which templates are built. The build's processes carry the mark of cluster
    `identity`.
    """

    identity: str
    binaries: Path
    work: Path


def ensure(
    builder: TemplateBuilder,
    store: Store,
    images: Sequence[Image],
    *,
    claim: Callable[[Path], None],
    in_use: Callable[[], set[str]],
    report: Callable[[str], None],
) -> Path:
    """Return a template with exactly `images`. If there is none, build it from the most similar template.

    `claim` records that the cluster uses the template, before another process can delete it. `in_use`
    returns the paths of the templates that must not be deleted.
    """
    root, final = _root(), _path(images)
    with _lock():
        if not final.exists():
            report(f"unpacking {len(images)} images once for all nodes")
            with files.building(final) as temporary:
                if older := _nearest(images):
                    _copy(older, temporary, builder.identity, [_BLOBS, _LAYERS])
                _import(builder, store, images, temporary)
                contents = {image.name: image.digest for image in images}
                files.write(temporary / "images.json", json.dumps(contents, indent=1))
        os.utime(final)
        claim(final)
        _prune(root, set(_templates(root)[-_KEEP:]) | set(map(Path, in_use())))
    return final


def lacking_bytes(store: Store, images: Collection[Image]) -> int:
    """Return how many bytes of the images must be unpacked to get a template with exactly these images."""
    with _lock():
        found = _nearest(images)
        if found == _path(images):
            return 0
        return store.size(store.lacking(images, blobs_in(found) if found else ()))


def delete_unused(in_use: Callable[[], set[str]], spared_for: Collection[Image] = ()) -> None:
    """Delete all templates that no cluster uses. Keep the nearest template to the images `spared_for`."""
    with _lock():
        spared = _nearest(spared_for)
        _prune(_root(), {*map(Path, in_use()), *([spared] if spared else [])})


def _root() -> Path:
    return files.cache_root() / "templates"


def _lock() -> AbstractContextManager[None]:
    return files.locked(_root() / ".lock", deadline=1800, what="the image templates")


def _path(images: Iterable[Image]) -> Path:
    """Return the path of the template with exactly these images."""
    content = json.dumps(sorted((one.name, one.digest) for one in images))
    return _root() / hashlib.sha256(content.encode()).hexdigest()[:16]


def _prune(root: Path, kept: Collection[Path]) -> None:
    """Delete the folders of killed builds, and all templates except `kept`. The caller holds the lock."""
    stale = [path for path in _templates(root) if path not in kept]
    for path in [*stale, *(left for left in root.glob(".*.*") if left.is_dir())]:
        shutil.rmtree(path, ignore_errors=True)


def _templates(root: Path) -> list[Path]:
    """Return all templates. The last in the list was used last."""
    found = [path.parent for path in root.glob("*/images.json") if not path.parent.name.startswith(".")]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def _nearest(images: Collection[Image]) -> Path | None:
    """Return the template with exactly these images, or else the one that has the most images of these
    names; None if no template has any.
    """
    if _path(images).exists():
        return _path(images)
    wanted = {image.name for image in images}
    best: tuple[int, float, Path] | None = None
    for path in _templates(_root()):
        names = set(json.loads((path / "images.json").read_text()))
        score = (len(names & wanted), path.stat().st_mtime, path)
        if names & wanted and (best is None or score > best):
            best = score
    return best[2] if best else None


def _import(builder: TemplateBuilder, store: Store, images: Sequence[Image], root: Path) -> None:
    """Run containerd on the store `root`, import missing images, and remove images that are not in
    `images`.
    """
    binaries, work = builder.binaries, builder.work
    log = work / "containerd.log"
    try:
        work.mkdir()
        (work / "root").symlink_to(root)
        (work / "config.toml").write_text(CONFIG.format(folder=work))
        with log.open("wb") as output:
            # Run containerd in its own namespaces, so that everything it mounts or starts ends with it in
            # every case.
            server = subprocess.Popen(
                ["unshare", "--mount-proc", "--pid", "--fork", "--kill-child", "--",
                 binaries / "containerd", f"--config={work}/config.toml"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", MARK: builder.identity},
            )  # fmt: skip
        try:
            _fill(binaries / "ctr", work, store, images, blobs_in(root))
            _stop(server)
        finally:
            server.kill()
            server.wait(timeout=30)
    except ClusterError as error:
        raise ClusterError(f"cannot make the image template: {error}\n{tail(log)}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill(ctr: Path, work: Path, store: Store, images: Sequence[Image], present: set[str]) -> None:
    command = [str(ctr), f"--address={work}/socket", "--namespace=k8s.io"]

    def responds() -> bool:
        try:
            run([*command, "images", "list", "--quiet"], deadline=5)
        except ClusterError:
            return False
        return True

    wait_for(responds, deadline=60, what="containerd for the image template")

    def write(archive: IO[bytes]) -> None:
        store.write_archive(images, archive, present)

    run([*command, "images", "import", "--local", "-"], deadline=900, stdin=write)
    known = run([*command, "images", "list", "--quiet"]).split()
    unwanted = set(known) - {image.name for image in images}
    if unwanted:
        run([*command, "images", "remove", "--sync", *sorted(unwanted)], deadline=120)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Shut containerd down with SIGTERM, so that it closes its databases."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    for pid in children:
        os.kill(int(pid), signal.SIGTERM)
    try:
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        raise ClusterError("containerd did not end after 30 s") from None
