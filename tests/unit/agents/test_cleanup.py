"""Tests of the clean-up of the node when an agent stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from convoy_agents.csi.cleanup import clean_up

EMPTY = ("run/lib-0123/convoy/__init__.py", "run/lib-4567.new/a.py", "run/pods/", "run/state/", "run/memory/")


@pytest.mark.parametrize(
    ("there", "stays"),
    [
        (EMPTY, []),
        ((), []),
        ((*EMPTY, "run/memory/job/shard"), ["run/memory"]),
        ((*EMPTY, "run/pods/short/agent.sock", "run/state/short.json"), ["run/pods", "run/state"]),
        ((*EMPTY, "run/of-somebody-else"), ["run/of-somebody-else"]),
        ((*EMPTY, "plugin/csi.sock"), ["plugin"]),
    ],
)
def test_cleanup_removes_only_the_agent_s_own_empty_folders(
    tmp_path: Path, there: tuple[str, ...], stays: list[str]
) -> None:
    for folder in ("run", "plugin"):
        (tmp_path / folder).mkdir()
    for name in there:
        path = tmp_path / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("")
    left = clean_up(tmp_path / "run", tmp_path / "plugin")
    assert left == [str(tmp_path / name) for name in stays]
    assert sorted(p for p in [*(tmp_path / "run").iterdir(), tmp_path / "plugin"] if p.exists()) == sorted(
        tmp_path / name for name in stays
    )
    for name in there:
        if any(name.startswith(f"{kept}/") for kept in stays) and not name.endswith("/"):
            assert (tmp_path / name).exists(), "nothing of it is touched"
