"""The base image: `python:3.11-slim-bookworm` where it can be pulled, else a stand-in of the same make.

The stand-in is Debian's own bookworm with its Python 3.11, by debootstrap from the package mirror that this
machine uses; only where it came from differs for the images built on it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.downloads import reachable
from e2e.cluster.errors import CommandError
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, stream
from e2e.images import buildah

OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"
RELEASE = "bookworm"
PACKAGES = ("python3", "ca-certificates", "netbase", "tzdata")
# Raise it when what is done below changes.
VERSION = 2
STAND_IN = f"localhost/convoy-base:{RELEASE}-{VERSION}"

DOCKERFILE = """FROM scratch
ADD rootfs.tar /
ENV LANG=C.UTF-8 PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
"""
# Caches and documentation, which slim images leave out as well.
_DROPPED = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/log",
)


def ensure(progress: Progress) -> str:
    """The name, in buildah's local store, of the image to build on."""
    for name in (OFFICIAL, STAND_IN):
        if buildah.identifier(name):
            return name
    if reachable("https://docker.io"):
        try:
            progress.report(f"pulling {OFFICIAL}")
            buildah.pull(OFFICIAL)
            return OFFICIAL
        except CommandError as error:
            progress.report(f"{OFFICIAL} cannot be pulled: {error}")
    rootfs = _rootfs(progress)
    with tempfile.TemporaryDirectory(dir=files.cache_root()) as folder:
        context = Path(folder)
        (context / "rootfs.tar").hardlink_to(rootfs)
        (context / "Dockerfile").write_text(DOCKERFILE)
        buildah.build(STAND_IN, context / "Dockerfile", context, {})
    return STAND_IN


def _rootfs(progress: Progress) -> Path:
    """The stand-in's file system as a tar file, kept."""
    final = files.cache_root() / "base" / f"{RELEASE}-{VERSION}"
    if not final.exists():
        with (
            progress.long(f"making a stand-in for {OFFICIAL} by debootstrap"),
            files.building(final) as folder,
        ):
            root = folder / "root"
            stream(
                # In a mount namespace of its own: what it mounts goes with it, also when it is killed.
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--",
                 "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE, str(root),
                 *mirror()],
                deadline=900, log=files.cache_root() / "base" / "debootstrap.log",
            )  # fmt: skip
            for name in _DROPPED:
                shutil.rmtree(root / name, ignore_errors=True)
                (root / name).mkdir(parents=True)
            (root / "var/cache/apt/archives/partial").mkdir(parents=True)
            # This machine's mirror is nobody else's business.
            (root / "etc/apt/sources.list").unlink(missing_ok=True)
            (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
            archive = folder / "rootfs.tar"
            run(
                ["tar", "--create", "--numeric-owner", "--file", archive, "--directory", root, "."],
                deadline=120,
            )
            shutil.rmtree(root)
    return final / "rootfs.tar"


def mirror() -> list[str]:
    """The Debian mirror that this machine's apt uses for the release; empty leaves it to debootstrap."""
    try:
        lines = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"])
    except CommandError:
        return []
    for line in lines.splitlines():
        address, _, release = line.partition(" ")
        if release == RELEASE and "security" not in address:
            return [address]
    return []
