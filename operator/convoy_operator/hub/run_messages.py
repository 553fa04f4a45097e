"""Converts agents' messages about the facts of a run to the plain data of plans."""

from __future__ import annotations

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.run_view import FolderView, RunView
from convoy_crds.advice import MAX_FOLDERS

MAX_PATH = 256
"""Maximum number of characters of a data folder's path; the rest is cut off."""
MAX_VERSION = 64
"""Maximum number of characters of a version; the rest is cut off."""
_MAX_NUMBER = 2**53


def run_view(facts: wire.RunFacts) -> RunView:
    """Return the facts in the form that plans use. Folders beyond the maximum are left out."""
    return RunView(
        folders=tuple(
            FolderView(
                _printable(one.path[:MAX_PATH]),
                min(one.files, _MAX_NUMBER),
                min(one.median_bytes, _MAX_NUMBER),
            )
            for one in facts.folders[:MAX_FOLDERS]
        ),
        cpu_seconds=facts.cpu_ms / 1000,
        accelerator_seconds=facts.accelerator_ms / 1000,
        accelerators=facts.accelerators,
        seconds=facts.ms / 1000,
        python=facts.python[:MAX_VERSION],
        torch=facts.torch[:MAX_VERSION],
    )


def _printable(path: str) -> str:
    """Return a path for people's terminals. It comes from a user's pod."""
    return "".join(one if one.isprintable() else "?" for one in path)
