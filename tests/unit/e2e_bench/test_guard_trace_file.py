"""Tests of the replay of one trace file: its output, and its errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from e2e.bench.guard.command import run
from e2e.bench.guard.trace_file import replay
from typer.testing import CliRunner

AR = Path(__file__).parents[2] / "data" / "straggler" / "AR.npz"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A file with stage 0 of two replicas of AR, without the slow worker."""
    return saved(tmp_path / "pair.npz")


def saved(path: Path, without: str = "", **changes: np.ndarray) -> Path:
    with np.load(AR) as held:
        arrays = {name: held[name] for name in ("compute_20us", "optimizer", "reduce_scatter", "all_gather")}
        arrays = {name: one[:, :1, 1:3] for name, one in arrays.items()} | {"wall": held["wall"]}
    np.savez(path, **{name: one for name, one in {**arrays, **changes}.items() if name != without})
    return path


def test_each_change_is_one_line_and_the_summary_follows(pair: Path) -> None:
    assert list(replay(pair, None)) == [
        "pair.npz: 44 steps, 1 stages x 2 replicas",
        "causes: none",
        "named: nobody",
    ]
    lines = list(replay(pair, "0,1,1.2,21"))
    assert lines[1].startswith("step 23: Compute: rank 1 (stage 0, replica 1), ")
    assert lines[1].endswith("longer since step 21, recent, a suspect with few peers")
    assert [line for line in lines[2:] if "persistent" in line and line.startswith("step 3")]
    assert lines[-3:] == [
        "causes: Compute (step 23)",
        "named: rank 1 (stage 0, replica 1) (step 23)",
        "slowed from step 21: rank 1 (stage 0, replica 1), named at step 23",
    ]


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        ("1,0,1.2,3", "STAGE is 1, but the trace has 0 to 0"),
        ("0,2,1.2,3", "REPLICA is 2, but the trace has 0 to 1"),
        ("0,-1,1.2,3", "REPLICA is -1"),
        ("0,0,1.2,0", "STEP is 0, but the trace has 1 to 44"),
        ("0,0,1.2,45", "STEP is 45"),
        ("0,0,0,3", "FACTOR is 0, but must be"),
        ("0,0,nan,3", "FACTOR is nan"),
        ("0,0,1.2", "is not STAGE,REPLICA,FACTOR,STEP"),
        ("0,0,fast,3", "is not STAGE,REPLICA,FACTOR,STEP"),
    ],
)
def test_wrong_slow_rank_is_refused(pair: Path, slow: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        list(replay(pair, slow))


def test_wrong_file_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.npz"
    text.write_text("no archive")
    truncated = tmp_path / "truncated.npz"
    truncated.write_bytes(AR.read_bytes()[:5000])
    one = tmp_path / "one.npy"
    np.save(one, np.ones(3))
    for path, words in (
        (text, "not an .npz file"),
        (truncated, "not an .npz file"),
        (one, "not an .npz file"),
        (tmp_path / "missing.npz", "No such file"),
        (tmp_path, "Is a directory"),
        (saved(tmp_path / "a.npz", without="wall"), "no array 'wall'"),
        (saved(tmp_path / "b.npz", wall=np.ones(3)), "array wall has the shape"),
        (saved(tmp_path / "c.npz", compute_20us=np.zeros((44, 1, 2, 2, 6))), "a time above 0"),
        (saved(tmp_path / "d.npz", compute_20us=np.ones((44, 2))), "array compute_20us has the shape"),
        (saved(tmp_path / "e.npz", wall=np.array(["x"] * 44)), "not an .npz file"),
    ):
        with pytest.raises(ValueError, match=words):
            list(replay(path, None))


@pytest.mark.parametrize(
    "options",
    [["--replay", "missing.npz"], ["--replay", str(AR), "--slow", "9,0,1.2,3"], ["--slow", "0,0,1,1"]],
)
def test_command_ends_with_status_2_on_a_wrong_option(options: list[str]) -> None:
    app = typer.Typer()
    app.command()(run)
    assert CliRunner().invoke(app, options).exit_code == 2


def test_command_prints_the_replay(pair: Path) -> None:
    app = typer.Typer()
    app.command()(run)
    found = CliRunner().invoke(app, ["--replay", str(pair)])
    assert found.exit_code == 0 and "named: nobody" in found.stdout
