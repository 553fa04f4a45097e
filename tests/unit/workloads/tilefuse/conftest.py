from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packed-models")


@pytest.fixture(autouse=True)
def own_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed models of the tests go into a folder of their own. Kernels stay in the user's cache."""
    from convoy_workloads.engines.tilefuse import cache

    monkeypatch.setattr(cache, "folder", lambda: session_cache)
