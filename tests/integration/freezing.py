"""A file system of its own that can be frozen (fsfreeze): who writes to it then hangs in the kernel."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

MIB = 2**20
LONGEST_SECONDS = 60
"""After which it thaws by itself: nobody can kill a process that hangs, not even this one's."""
_FREEZE = f"""
fsfreeze --freeze "$1" && echo frozen
read -t {LONGEST_SECONDS}
fsfreeze --unfreeze "$1"
"""


@contextlib.contextmanager
def disk(folder: Path, mib: int = 96) -> Iterator[Path]:
    """An ext4 of so many MiB in a file in `folder`; where it is mounted. Needs root and a loop device."""
    image, target = folder / "disk.img", folder / "disk"
    target.mkdir()
    with image.open("wb") as file:
        file.truncate(mib * MIB)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, timeout=20)
    subprocess.run(["mount", "-o", "loop", str(image), str(target)], check=True, timeout=20)
    try:
        yield target
    finally:
        subprocess.run(["umount", str(target)], check=True, timeout=20)


@contextlib.contextmanager
def frozen(target: Path) -> Iterator[None]:
    """Meanwhile each write to the file system that is mounted there hangs; reads are answered."""
    holder = subprocess.Popen(
        ["bash", "-c", _FREEZE, "freeze", str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"frozen\n"
        yield
        assert holder.poll() is None, "it has thawed too early"
    finally:
        # The end of its input.
        holder.communicate(timeout=20)
    assert holder.returncode == 0
