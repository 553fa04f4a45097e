"""A separate file system that can be frozen (fsfreeze). A process that writes to it hangs in the kernel."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

MIB = 2**20
MAX_SECONDS = 60
"""Seconds after which a frozen file system thaws by itself. A process that hangs on it cannot be killed."""
_FREEZE = f"""
fsfreeze --freeze "$1" && echo frozen
read -t {MAX_SECONDS}
fsfreeze --unfreeze "$1"
"""


@contextlib.contextmanager
def disk(folder: Path, mib: int = 96) -> Iterator[Path]:
    """Mount an ext4 of `mib` MiB from a file in `folder`. Yield its path. Needs root and a loop device."""
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
    """Freeze the file system mounted at `target` while the block runs. Writes to it hang, reads do not."""
    holder = subprocess.Popen(
        ["bash", "-c", _FREEZE, "freeze", str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"frozen\n"
        yield
        assert holder.poll() is None, "the file system thawed too early"
    finally:
        # Closes the input, which ends the freeze.
        holder.communicate(timeout=20)
    assert holder.returncode == 0
