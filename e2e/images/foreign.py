"""Root file systems of images without Convoy's packages. `python -m e2e.images.foreign` builds missing
ones.

Debian's releases have Python 3.9 and later with glibc. One image has CPython, built from Debian's source
package, with musl. The cache keeps each root file system. `make foreign-images` runs the launcher in all
images.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, stream
from e2e.images import base
from e2e.setup import host

VERSION = 1
"""Version of the build steps below. Increase it when the steps change."""
SCRIPTS, NEWEST = Path("/usr/share/debootstrap/scripts"), "sid"
"""Folder of debootstrap's scripts, and the name of the script for releases that have no script there."""
SHELLS = ("sh", "dash", "bash", "rbash")
MUSL_SOURCE = "python3.11"
_UNUSED = ("test", "idlelib", "lib2to3", "tkinter", "config-3.11-x86_64-linux-musl")
_COMPILER = """#!/bin/sh
# Python's build asks for an architecture, and adds the folders of Debian's glibc headers for it.
case $1 in *-print-multiarch) echo x86_64-linux-musl; exit;; esac
for word; do
    shift
    case $word in -I/usr/include*|-I/usr/local/include) ;; *) set -- "$@" "$word";; esac
done
exec musl-gcc -isystem {headers} "$@"
"""
_KERNEL_HEADERS = {
    "linux": "/usr/include/linux",
    "asm-generic": "/usr/include/asm-generic",
    "asm": "/usr/include/x86_64-linux-gnu/asm",
}
"""Folders of the kernel's headers, by name. musl has no kernel headers, and these work with any libc."""


@dataclass(frozen=True)
class Foreign:
    """An image that does not contain Convoy."""

    name: str
    libc: str
    python: str
    """Python's version as `major.minor`."""
    build: Callable[[Path], None]
    """Function that writes the root file system into an empty folder."""
    runs: bool = True
    """True if the launcher must run in the image; False if it must report why it cannot run."""

    @property
    def root(self) -> Path:
        """Folder of the root file system. It exists only after the build."""
        return files.cache_root() / "foreign" / f"{self.name}-{VERSION}"


def _mirror() -> str:
    """Return this machine's Debian mirror."""
    return (base.mirror() or ["http://deb.debian.org/debian"])[0]


def _debian(release: str, root: Path, packages: Sequence[str] = ("python3",), shell: bool = True) -> None:
    """Install a minimal Debian with these packages into the folder `root`. Without `shell`, delete every
    shell.
    """
    script = SCRIPTS / release
    stream(
        # Run debootstrap in its own mount namespace, so that its mounts end with it, even if it is killed.
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--",
         "debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, str(root),
         _mirror(), str(script if script.exists() else SCRIPTS / NEWEST)],
        deadline=900, log=files.cache_root() / "foreign" / "debootstrap.log",
    )  # fmt: skip
    for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    for name in () if shell else SHELLS:
        (root / "bin" / name).unlink(missing_ok=True)


def _musl(root: Path) -> None:
    """Install CPython, linked with musl, into the folder `root`. It has no shell, OpenSSL, ctypes or zlib."""
    if not host.present(("musl-gcc",)):
        host.install(["musl-tools"])
    work = root.with_name(root.name + ".work")
    shutil.rmtree(work, ignore_errors=True)
    try:
        _compile(_source(work), work, root)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    (root / "lib").mkdir(exist_ok=True)
    shutil.copy("/usr/lib/x86_64-linux-musl/libc.so", root / "lib/ld-musl-x86_64.so.1")
    for name in _UNUSED:
        shutil.rmtree(root / "usr/local/lib/python3.11" / name, ignore_errors=True)
    (root / "usr/local/lib/libpython3.11.a").unlink(missing_ok=True)


def _source(work: Path) -> Path:
    """Download and unpack the source of CPython, and return its folder. This machine's package lists do not
    change.
    """
    (work / "lists/partial").mkdir(parents=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (work / "sources.list").write_text(f"deb-src [signed-by={keys}] {_mirror()} {base.RELEASE} main\n")
    options = {
        "Dir::Etc::SourceList": f"{work}/sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": f"{work}/lists",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "--quiet", *(f"--option={name}={value}" for name, value in options.items())]
    run([*apt, "update"], deadline=300)
    run(["env", f"--chdir={work}", *apt, "source", "--download-only", MUSL_SOURCE], deadline=300)
    archive = next(work.glob(f"{MUSL_SOURCE}_*.orig.tar.*"))
    run(["tar", "--extract", "--file", archive, "--directory", work], deadline=120)
    return next(path for path in work.glob("Python-*") if path.is_dir())


def _compile(source: Path, work: Path, root: Path) -> None:
    headers, compiler = work / "headers", work / "musl-cc"
    headers.mkdir()
    for name, target in _KERNEL_HEADERS.items():
        (headers / name).symlink_to(target)
    compiler.write_text(_COMPILER.format(headers=headers))
    compiler.chmod(0o755)
    options = ["--prefix=/usr/local", "--without-ensurepip", "--disable-test-modules"]
    steps = (
        [f"--chdir={source}", f"CC={compiler}", "./configure", *options],
        [f"--chdir={source}", "make", f"-j{os.cpu_count() or 1}"],
        [f"--chdir={source}", "make", "install", f"DESTDIR={root}"],
    )
    for step in steps:
        stream(["env", *step], deadline=1800, log=files.cache_root() / "foreign" / "musl.log")


IMAGES = (
    Foreign("bullseye", "glibc 2.31", "3.9", partial(_debian, "bullseye")),
    Foreign("bookworm", "glibc 2.36", "3.11", partial(_debian, "bookworm")),
    Foreign("bookworm-no-shell", "glibc 2.36", "3.11", partial(_debian, "bookworm", shell=False)),
    Foreign(
        "bookworm-minimal",
        "glibc 2.36",
        "3.11",
        partial(_debian, "bookworm", packages=("python3-minimal",)),
        runs=False,
    ),
    Foreign("trixie", "glibc 2.41", "3.13", partial(_debian, "trixie")),
    Foreign("forky", "glibc 2.43", "3.14", partial(_debian, "forky")),
    Foreign("musl", "musl 1.2.3", "3.11", _musl),
)


def ensure(progress: Progress) -> None:
    """Build each missing root file system. This takes minutes the first time."""
    with files.locked(files.cache_root() / "foreign" / ".lock", deadline=3600, what="foreign images"):
        for image in IMAGES:
            if not image.root.exists():
                with progress.long(f"building image {image.name}"), files.building(image.root) as folder:
                    image.build(folder)


if __name__ == "__main__":
    ensure(Progress())
