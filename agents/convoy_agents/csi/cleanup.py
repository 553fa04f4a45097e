"""Clean-up of the node when the agent stops.

The agent cannot know whether another agent will start on this node. So it removes only files that the next
agent would create again, and only while the node has no pods and no checkpoints.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from convoy_agents.csi import library

_FOLDERS = ("pods", "state", "memory", "faults")


def clean_up(run_dir: Path, plugin_dir: Path) -> list[str]:
    """Remove the library, all empty folders of the agent, and the driver's folder. Return the paths that
    remain.
    """
    for shelf in run_dir.glob(f"{library.PREFIX}*"):
        shutil.rmtree(shelf, ignore_errors=True)
    for folder in (*(run_dir / name for name in _FOLDERS), plugin_dir):
        # rmdir fails for a folder that is not empty, so such a folder stays.
        with contextlib.suppress(OSError):
            folder.rmdir()
    left = [*run_dir.iterdir()] + [folder for folder in (plugin_dir,) if folder.exists()]
    return sorted(str(path) for path in left)
