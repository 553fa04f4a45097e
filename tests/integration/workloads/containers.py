"""A launcher in its own root file system, with the user, folders and access rights that a kubelet sets.

Needs root, and namespaces by `unshare`. If this file runs as a script, it sets up the new namespaces from
inside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

PODS = "/var/run/convoy"
HOME = "/var/run/convoy-home"
DEVICES = ("null", "zero", "full", "random", "urandom")
SYSTEM = ("lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True)
class Container:
    """The fields of a pod and its image that a container runtime reads."""

    root: str
    """Path of the image's root file system. It is mounted, and its content is not changed."""
    environment: Mapping[str, str]
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Folders and files of this machine, by their path in the container. These paths must exist in the root
    file system.
    """
    uid: int = 65532
    working_dir: str = "/"
    read_only: bool = True
    shared_memory: bool = True
    command: Sequence[str] = ("python3", "-I", "-S", "-X", "utf8", f"{PODS}/lib/convoy_launch.py")

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Start the container's first process, and write its output to the file `log`."""
        with log.open("wb") as file:
            return subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--",
                 sys.executable, "-I", __file__, json.dumps(asdict(self))],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip


def skeleton(root: Path) -> Path:
    """Create the folders on which a container runtime mounts. Return the root file system."""
    for name in ("/proc", "/dev", "/tmp", "/etc", "/app", PODS, HOME):
        within(root, name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    return root


def within(root: Path, path: str) -> Path:
    """Return the path on this machine for an absolute path in the container. Symbolic links never lead out
    of the root.
    """
    found = root
    for part in Path(path).parts[1:]:
        found /= part
        if found.is_symlink():
            target = found.parent.relative_to(root) / found.readlink()
            found = within(root, os.path.normpath(Path("/", target)))
    return found


def _enter(container: Container) -> None:
    """Run as the container's first process. Set the working directory first and the user second, as runc
    does.
    """
    root = container.root
    _mount("--make-rprivate", "/")
    _mount("--bind", root, root)
    _mount("-t", "tmpfs", "dev", f"{root}/dev")
    for name in DEVICES:
        Path(f"{root}/dev/{name}").touch()
        _mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    if container.shared_memory:
        Path(f"{root}/dev/shm").mkdir(mode=0o1777)
        Path(f"{root}/dev/shm").chmod(0o1777)
    _mount("-t", "proc", "proc", f"{root}/proc")
    for target, source in container.mounts.items():
        place = within(Path(root), target)
        if target.startswith("/dev/"):
            place.touch()
        _mount("--bind", source, str(place))
    if container.read_only:
        _mount("-o", "remount,bind,ro", root)
    os.chroot(root)
    os.chdir(container.working_dir)
    os.setgroups([container.uid])
    os.setgid(container.uid)
    os.setuid(container.uid)
    os.execvpe(container.command[0], list(container.command), dict(container.environment))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    _enter(Container(**json.loads(sys.argv[1])))
