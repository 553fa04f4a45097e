"""What an agent takes off its node as it leaves, so that nothing stays of one that is removed for good.

Whether it is for good the agent cannot know: it takes only what the next one makes anew, and only while there
are neither pods nor checkpoints.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from convoy_agents.csi import library

_FOLDERS = ("pods", "state", "memory")


def clean_up(run_dir: Path, plugin_dir: Path) -> list[str]:
    """Removes the library, empty folders and the driver's own; names what is left of them."""
    for shelf in run_dir.glob(f"{library.PREFIX}*"):
        shutil.rmtree(shelf, ignore_errors=True)
    for folder in (*(run_dir / name for name in _FOLDERS), plugin_dir):
        # What holds anything is no longer for this agent to judge.
        with contextlib.suppress(OSError):
            folder.rmdir()
    left = [*run_dir.iterdir()] + [folder for folder in (plugin_dir,) if folder.exists()]
    return sorted(str(path) for path in left)
