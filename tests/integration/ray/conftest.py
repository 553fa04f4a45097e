"""A folder that programs of any user can read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def shared() -> Iterator[Path]:
    # Not pytest's own folder: each run of pytest closes that to other users.
    with tempfile.TemporaryDirectory(prefix="convoy-ray-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
