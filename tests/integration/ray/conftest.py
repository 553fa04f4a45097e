"""Machines and a folder that programs of any user can read."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    return folder
