"""Removes the mounts that a killed run of the tests has left, because pytest cannot remove a folder that has
one.
"""

from __future__ import annotations

from pathlib import Path

from convoy_agents.csi import mounts


def unmount_below(folder: Path) -> None:
    """Unmount everything below `folder`, the innermost first."""
    for mount in reversed(mounts.table()):
        if Path(mount.target).is_relative_to(folder):
            mounts.unmount(Path(mount.target))


def unmount_ended_runs(root: Path) -> None:
    """Unmount everything below the folders of ended runs. `root`: pytest's folder with one folder per run."""
    runs = {
        root / Path(mount.target).relative_to(root).parts[0]
        for mount in mounts.table()
        if root in Path(mount.target).parents
    }
    for run in runs:
        if not _runs(run):
            unmount_below(run)


def _runs(folder: Path) -> bool:
    """Return True if the process that holds the lock of a run's folder lives. pytest removes the lock at the
    end of a run, unless the run is killed.
    """
    try:
        owner = int((folder / ".lock").read_text())
    except (OSError, ValueError):
        return False
    return Path(f"/proc/{owner}").exists()
