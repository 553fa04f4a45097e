"""Tests of `convoy trace`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.traces.build import FIXTURES, collective, comp, trace
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy_workloads.traces.attributes import set_attributes
from convoy_workloads.traces.wire.writer import write


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["trace", *map(str, words)])


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the traces of the recorded DDP training."""
    folder = tmp_path_factory.mktemp("converted")
    result = run("convert", FIXTURES / "ddp", "--out", folder, "--prefix", "ddp")
    assert result.exit_code == 0, result.output
    assert [line.split(": ")[0] for line in result.output.splitlines()] == [
        f"{folder}/ddp.0.et",
        f"{folder}/ddp.1.et",
    ]
    return folder


def test_converted_traces_are_valid(converted: Path) -> None:
    result = run("validate", converted)
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        0,
        "2 file(s) with 2010 nodes: nothing is wrong",
    )
    assert json.loads(run("validate", converted, "-o", "json").output) == {"files": 2, "findings": []}


def test_a_replay_shows_measured_replayed_and_naive_times(converted: Path) -> None:
    head, *rows = run("replay", converted).output.splitlines()
    assert head.split() == ["TRACE", "NODES", "MEASURED", "REPLAY", "RATIO", "NAIVE"]
    assert [" ".join(row.split()) for row in rows] == [
        "rank 0 1006 968.713 ms 968.713 ms 1.000 1296.260 ms",
        "rank 1 1004 1068.474 ms 1068.474 ms 1.000 1497.710 ms",
    ]


@pytest.mark.parametrize(
    ("options", "shorter"),
    [(["--scale", "0.5"], True), (["--scale", "2"], False), (["--bandwidth", "10"], True)],
)
def test_a_replay_with_other_communication(converted: Path, options: list[str], shorter: bool) -> None:
    row = json.loads(run("replay", converted / "ddp.0.et", "-o", "json", *options).output)[0]
    assert row["measuredUs"] == 968713
    assert (row["replayUs"] < row["measuredUs"]) is shorter


def test_a_prediction_with_slower_links_and_other_buckets(converted: Path) -> None:
    lines = run("predict", converted, "--speed", "1", "--speed", "0.0001").stdout.splitlines()
    assert lines[0].startswith("links: ")
    assert "us a message; 6 communications, error " in lines[0]
    head, *rows = lines[1:]
    assert head.split() == ["SPEED", "BUCKET", "STEP", "RATIO"]
    assert [row.split()[0] for row in rows] == ["recorded", "1", "0.0001"]
    ratios = [float(row.split()[-1]) for row in rows]
    assert ratios[1] == 1
    assert ratios[2] > 10
    words = ["--bucket", "1", "--calibrate", converted, "--sharing", "fifo", "-o", "json"]
    result = run("predict", converted, *words)
    found = json.loads(result.stdout)
    assert found["links"]["sharing"] == "fifo"
    assert [(one["speed"], one["bucketMiB"]) for one in found["predictions"]] == [(1, 1)]
    warned = [f"warning: {one['code']}: {one['message']}" for one in found["warnings"]]
    assert result.stderr.splitlines() == warned
    assert "FewCommunications" in {one["code"] for one in found["warnings"]}


def test_a_replay_without_recorded_times_leaves_their_cells_empty(tmp_path: Path) -> None:
    for rank in (2, 10):
        write(trace(comp(1), collective(2, deps=(1,)), rank=rank), tmp_path / f"job.{rank}.et")
    rows = [row.split() for row in run("replay", tmp_path).output.splitlines()[1:]]
    assert rows == [["rank", "2", "2", "0.020", "ms"], ["rank", "10", "2", "0.020", "ms"]]
    found = json.loads(run("replay", tmp_path, "-o", "json").output)
    assert [(one["measuredUs"], one["naiveUs"]) for one in found] == [(None, None)] * 2


def test_a_folder_with_traces_of_torch_names_convert() -> None:
    result = run("analyse", FIXTURES / "ddp")
    assert result.exit_code == 1
    assert f"first `convoy trace convert {FIXTURES / 'ddp'} --out chakra`" in result.output


def test_an_analysis_names_bytes_and_exposed_communication(converted: Path) -> None:
    rows = json.loads(run("analyse", converted, "-o", "json", "--top", "3").output)
    assert [row["name"] for row in rows] == ["rank 0", "rank 1"]
    assert [(row["steps"], row["bytesPerStep"]) for row in rows] == [(2, 1732 * 4 + 12)] * 2
    assert all(0.2 < row["exposedShare"] < 0.5 for row in rows)
    assert [len(row["operations"]) for row in rows] == [3, 3]
    text = run("analyse", converted / "ddp.0.et").output
    assert text.startswith("rank 0: 968.713 ms, 2 step(s)\n")
    assert "6.8Ki of communication a step" in text
    assert "gloo:all_reduce" in text


def test_a_trace_is_shown(converted: Path) -> None:
    file = converted / "ddp.0.et"
    head, *rows = run("show", file, "--communications").output.splitlines()
    assert head.split() == ["ID", "START", "US", "KIND", "BYTES", "GROUP", "AFTER", "NAME"]
    assert [row.split()[3:6] for row in rows] == 2 * [
        ["ALL_REDUCE", "4752", "0"],
        ["ALL_REDUCE", "2176", "0"],
        ["ALL_REDUCE", "12", "1"],
    ]
    found = json.loads(run("show", file, "--node", "291").output)
    assert found["attributes"] == {
        "is_cpu_op": False, "comm_type": 0, "comm_size": 4752, "pg_name": "0", "host_gap_us": 231,
        "step": 3,
    }  # fmt: skip
    assert run("show", file, "--limit", "2").output.splitlines()[-1] == "... and 1004 more nodes"
    assert json.loads(run("show", file, "-o", "json").output)["trace"]["rank"] == 0
    result = run("show", file, "--node", "99999999")
    assert (result.exit_code, result.output) == (1, f"error: {file}: no node has the id 99999999\n")


def test_generated_traces_are_valid(tmp_path: Path) -> None:
    options = ("--layers", 4, "--data", 2, "--tensor", 2, "--pipeline", 2, "--microbatches", 4, "--gzip")
    result = run("generate", "--out", tmp_path / "job", *options)
    assert result.exit_code == 0
    assert result.output.startswith(f"{tmp_path}/job: 8 file(s) with ")
    assert len(list((tmp_path / "job").glob("trace.*.et.gz"))) == 8
    assert run("validate", tmp_path / "job").exit_code == 0


def test_synthetic_traces_have_the_output_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()
    commands, output = page.split("## Synthetic workloads")[1].split("```sh\n")[1].split("```output\n")
    monkeypatch.chdir(tmp_path)
    lines = commands.split("```")[0].splitlines()
    assert [line.split()[2] for line in lines] == ["generate", "validate", "show"]
    assert "".join(run(*line.split()[2:]).output for line in lines) == output.split("```")[0]


def test_findings_are_listed_and_the_status_is_1(tmp_path: Path) -> None:
    for rank, size in enumerate((64, 32)):
        write(trace(comp(1, num_ops=-1), collective(2, size=size)), tmp_path / f"job.{rank}.et")
    result = run("validate", tmp_path)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        f"{tmp_path}/job.0.et: NegativeValue (rank 0, node 1): attribute num_ops is -1",
        f"{tmp_path}/job.1.et: NegativeValue (rank 1, node 1): attribute num_ops is -1",
        "CollectiveMismatch (rank 1, node 2): group '': collective 1 is ALL_REDUCE of 32 bytes, but on rank "
        "0 it is ALL_REDUCE of 64 bytes (node 2)",
        "error: 3 finding(s)",
    ]


def test_a_damaged_file_is_named_with_its_byte(tmp_path: Path) -> None:
    file = tmp_path / "job.0.et"
    write(trace(comp(1)), file)
    file.write_bytes(file.read_bytes()[:-3])
    for command in ("replay", "analyse", "show"):
        result = run(command, file)
        assert result.exit_code == 1
        assert result.output.startswith(f"error: {file}: Truncated (rank 0, byte 8): a message of ")
    assert run("validate", file).output.startswith(f"{file}: Truncated (rank 0, byte 8)")


@pytest.mark.parametrize("command", ["replay", "analyse", "predict"])
def test_traces_that_validate_refuses_are_not_used(tmp_path: Path, command: str) -> None:
    file = tmp_path / "job.0.et"
    late = comp(2)
    late.duration_micros = 2**63
    write(trace(comp(1, num_ops=-1), late), file)
    lines = run("validate", file).output.splitlines()[:2]
    assert [line.split(": ")[1].split(" ")[0] for line in lines] == ["NegativeValue", "NegativeTime"]
    result = run(command, file)
    assert result.exit_code == 1
    assert result.output == f"error: {'; '.join([lines[0], lines[1].removeprefix(f'{file}: ')])}\n"


@pytest.mark.parametrize("command", ["replay", "analyse"])
def test_a_world_without_end_is_refused(tmp_path: Path, command: str) -> None:
    one = trace(comp(1), collective(2))
    set_attributes(one.metadata, world_size=2**62)
    write(one, tmp_path / "job.0.et")
    result = run(command, tmp_path, "--bandwidth", 1)
    assert (result.exit_code, "OutOfRange (rank 0): attribute world_size" in result.output) == (1, True)


@pytest.mark.parametrize("command", ["replay", "analyse"])
def test_dangling_dependencies_are_dropped_on_demand(tmp_path: Path, command: str) -> None:
    file = tmp_path / "job.0.et"
    write(trace(comp(1), comp(2, (1, 7)), comp(3, (8,))), file)
    result = run(command, file)
    assert result.exit_code == 1
    assert "DanglingDependency (rank 0, node 2): data_deps: node 7 is not in the trace" in result.output
    assert result.output.endswith("; --ignore-dangling drops such dependencies\n")
    result = run(command, file, "--ignore-dangling")
    assert result.exit_code == 0
    assert f"{file}: dropped 2 dependencies on nodes that are not in the trace\n" in result.output


def test_a_communication_of_no_bytes_is_told_and_replayed(tmp_path: Path) -> None:
    file = tmp_path / "job.0.et"
    write(trace(collective(2, size=0)), file)
    assert run("validate", file).exit_code == 1
    result = run("replay", file)
    assert result.exit_code == 0
    assert f"{file}: EmptyCommunication (rank 0, node 2): comm_size is 0" in result.output


def test_names_in_foreign_traces_cannot_control_the_terminal(tmp_path: Path) -> None:
    node = comp(1)
    node.name = "\x1b]0;title\x07 [red]x"
    write(trace(node), tmp_path / "job.0.et")
    for command in ("show", "analyse"):
        output = run(command, tmp_path / "job.0.et").output
        assert "\x1b" not in output
        assert "?]0;title? [red]x" in output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("replay", "{}/absent.0.et"), "absent.0.et: Unreadable: no such file"),
        (("validate", "{}"), "the folder has no file *.et or *.et.gz"),
        (("convert", "{}"), "the folder has no file host.RANK.json and kineto.RANK.json"),
        (("convert", "{}/half"), "half: kineto.0.json is missing. The host trace has no times"),
        (("convert", "{}/kineto"), "kineto: host.0.json is missing. The Kineto trace has the times alone"),
        (("convert", "{}/kineto"), "pass `execution_trace_observer=ExecutionTraceObserver()"),
        (
            ("convert", "{}/renamed"),
            "kineto.5.json.gz: the trace is that of rank 0, but the file's name says 5",
        ),
        (("replay", FIXTURES / "astra_sim", "--scale", "-1"), "--scale must be from 0"),
        (("replay", FIXTURES / "astra_sim", "--bandwidth", "0"), "--bandwidth must be above 0"),
        (("predict", FIXTURES / "astra_sim", "--speed", "0"), "--speed must be from 0.000001"),
        (("predict", FIXTURES / "astra_sim", "--bucket", "-1"), "--bucket must be from 0.000001"),
        (("predict", FIXTURES / "astra_sim"), "DuplicateRank"),
        (("predict", FIXTURES / "astra_sim" / "all_reduce.0.et"), "the links cannot be calibrated"),
        (("generate", "--layers", "3", "--pipeline", "2"), "layers: 3 layers cannot be split"),
        (("generate", "--schedule", "x"), "--schedule must be one of GPipe, 1F1B, not 'x'"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, words: tuple[object, ...], text: str) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "host.0.json").write_text("{}")
    (tmp_path / "kineto").mkdir()
    (tmp_path / "kineto" / "kineto.0.json").write_text("{}")
    (tmp_path / "renamed").mkdir()
    for kind in ("host", "kineto"):
        shutil.copy(
            FIXTURES / "collectives" / f"{kind}.0.json.gz", tmp_path / "renamed" / f"{kind}.5.json.gz"
        )
    result = run(*(str(word).format(tmp_path) for word in words))
    assert result.exit_code == 1
    assert "error: " in result.output
    assert text in result.output


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (
            ["convert.convert", "wire.writer", "validate.all_ranks", "analysis", "generate.traces", "record"],
            "torch",
        ),
        (["findings", "wire.limits"], "google.protobuf"),
    ],
)
def test_heavy_packages_are_imported_where_they_are_used(modules: list[str], absent: str) -> None:
    imports = "".join(f"import convoy_workloads.traces.{one}\n" for one in modules)
    code = f"{imports}import sys\nassert {absent!r} not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
