"""Ready-made container stores: images are imported and unpacked once, then every node gets hard links.

The parts of a containerd root that never change once written (blobs, unpacked layers) are linked, so a node's
store costs no disk, and its files are in the page cache once for all nodes. The databases are copied.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.errors import ClusterError
from e2e.cluster.oci import Image, Store
from e2e.cluster.run import run, tail, wait_for

CONTENT = "io.containerd.content.v1.content"
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs"
METADATA = "io.containerd.metadata.v1.bolt"
_LINKED = (f"{CONTENT}/blobs", f"{SNAPSHOTS}/snapshots")
_COPIED = (f"{SNAPSHOTS}/metadata.db", f"{METADATA}/meta.db")
_KEEP = 3

CONFIG = """version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]

[grpc]
address = "{folder}/socket"

[ttrpc]
address = "{folder}/socket.ttrpc"
"""


def blobs_in(store: Path) -> set[str]:
    """The digests that a node's containerd store already holds."""
    folder = store / CONTENT / "blobs" / "sha256"
    return {f"sha256:{path.name}" for path in folder.iterdir()} if folder.is_dir() else set()


def clone(template: Path, target: Path) -> None:
    """Give `target` what `template` has; both on one file system. Raises ClusterError when that cannot be."""
    for part in _LINKED:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "-al", template / part, target / part], deadline=120)
    for part in _COPIED:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "-a", "--reflink=auto", template / part, target / part], deadline=60)


def ensure(binaries: Path, store: Store, images: Sequence[Image], say: Callable[[str], None]) -> Path:
    """The store that holds exactly `images`, made from the nearest older one when it is not there yet."""
    key = hashlib.sha256(json.dumps(sorted((one.name, one.digest) for one in images)).encode()).hexdigest()[:16]
    root = files.cache_root() / "templates"
    final = root / key
    if final.exists():
        os.utime(final)
        return final
    with files.locked(root / ".lock", deadline=1800, what="the image templates"):
        if final.exists():
            return final
        say(f"unpacking {len(images)} images once for all nodes")
        with files.building(final) as temporary:
            older = _nearest(root, images)
            if older:
                clone(older, temporary)
            _import(binaries, store, images, temporary)
            contents = {image.name: image.digest for image in images}
            files.write(temporary / "images.json", json.dumps(contents, indent=1))
        for stale in sorted(_templates(root), key=lambda path: path.stat().st_mtime)[:-_KEEP]:
            shutil.rmtree(stale, ignore_errors=True)
    return final


def _templates(root: Path) -> list[Path]:
    return [path.parent for path in root.glob("*/images.json") if not path.parent.name.startswith(".")]


def _nearest(root: Path, images: Sequence[Image]) -> Path | None:
    """The template that already has most of these images."""
    wanted = {image.name for image in images}
    best: tuple[int, float, Path] | None = None
    for path in _templates(root):
        names = set(json.loads((path / "images.json").read_text()))
        score = (len(names & wanted), path.stat().st_mtime, path)
        if names & wanted and (best is None or score > best):
            best = score
    return best[2] if best else None


def _import(binaries: Path, store: Store, images: Sequence[Image], root: Path) -> None:
    """Run a containerd on `root` for as long as it takes to import what is missing and drop what is not wanted."""
    # A short path: the sockets lie there.
    work = Path(tempfile.mkdtemp(prefix="convoy-template-"))
    log = work / "containerd.log"
    try:
        (work / "root").symlink_to(root)
        (work / "config.toml").write_text(CONFIG.format(folder=work))
        with log.open("wb") as output:
            # In namespaces of its own: whatever it mounts or starts ends with it, however we end.
            server = subprocess.Popen(
                ["unshare", "--mount-proc", "--pid", "--fork", "--kill-child", "--",
                 binaries / "containerd", f"--config={work}/config.toml"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"},
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

    def answers() -> bool:
        try:
            run([*command, "images", "list", "--quiet"], deadline=5)
        except ClusterError:
            return False
        return True

    wait_for(answers, deadline=60, what="containerd for the image template")
    # Not in the system's temporary folder, which may be small or in memory.
    with tempfile.TemporaryFile(dir=files.cache_root()) as archive:
        store.write_archive(images, archive, present)
        archive.seek(0)
        run([*command, "images", "import", "--local", "-"], deadline=900, stdin=archive)
    known = run([*command, "images", "list", "--quiet"]).split()
    unwanted = set(known) - {image.name for image in images}
    if unwanted:
        run([*command, "images", "remove", "--sync", *sorted(unwanted)], deadline=120)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End containerd in good order, so that its databases are closed."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    for pid in children:
        os.kill(int(pid), signal.SIGTERM)
    try:
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        raise ClusterError("containerd did not end after 30 s") from None
