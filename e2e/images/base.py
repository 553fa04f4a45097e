"""The base image: `python:3.11-slim-bookworm` if it can be pulled, otherwise a stand-in that is equivalent.

The stand-in is Debian bookworm with Debian's Python 3.11. debootstrap installs it from the machine's
package mirror. Images built on the stand-in work the same.
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
# Version of the stand-in's build steps. Increase it when the steps change.
VERSION = 2
STAND_IN = f"localhost/convoy-base:{RELEASE}-{VERSION}"

DOCKERFILE = """FROM scratch
ADD rootfs.tar /
ENV LANG=C.UTF-8 PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
"""
# Folders with caches and documentation, which slim images do not have.
_DROPPED = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/log",
)


def ensure(progress: Progress) -> str:
    """Return the name of the base image in buildah's local store. Pull or build the image if missing."""
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
    """Return the path of a tar file with the stand-in's file system. Build the file if it does not exist."""
    final = files.cache_root() / "base" / f"{RELEASE}-{VERSION}"
    if not final.exists():
        with (
            progress.long(f"building a stand-in for {OFFICIAL} with debootstrap"),
            files.building(final) as folder,
        ):
            root = folder / "root"
            stream(
                # Run debootstrap in its own mount namespace, so that its mounts end with it, even if it is
                # killed.
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--",
                 "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE, str(root),
                 *mirror()],
                deadline=900, log=files.cache_root() / "base" / "debootstrap.log",
            )  # fmt: skip
            for name in _DROPPED:
                shutil.rmtree(root / name, ignore_errors=True)
                (root / name).mkdir(parents=True)
            (root / "var/cache/apt/archives/partial").mkdir(parents=True)
            # Other machines cannot use this machine's mirror, so keep its address out of the image.
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
    """Return the Debian mirror from which this machine's apt gets RELEASE, as a list of one address.

    The list is empty if apt has no such mirror; debootstrap then uses its default.
    """
    try:
        lines = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"])
    except CommandError:
        return []
    for line in lines.splitlines():
        address, _, release = line.partition(" ")
        if release == RELEASE and "security" not in address:
            return [address]
    return []
