"""Clean-up of the node when the agent leaves.

The agent cannot know whether another agent will follow. It removes only what the next agent makes again,
and only while the node has no pods and no checkpoints.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from convoy_agents.csi import library

_FOLDERS = ("pods", "state", "memory")


def clean_up(run_dir: Path, plugin_dir: Path) -> list[str]:
    """Remove the library, empty folders and the driver's folder. Return the paths that are left."""
    for shelf in run_dir.glob(f"{library.PREFIX}*"):
        shutil.rmtree(shelf, ignore_errors=True)
    for folder in (*(run_dir / name for name in _FOLDERS), plugin_dir):
        # rmdir fails for a folder that is not empty: it stays.
        with contextlib.suppress(OSError):
            folder.rmdir()
    left = [*run_dir.iterdir()] + [folder for folder in (plugin_dir,) if folder.exists()]
    return sorted(str(path) for path in left)
