"""Tests of the command `convoy what-if`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli import what_if
from convoy.cli.__main__ import app
from convoy_crds.placement import Step

from .infrastructures import BLUEPRINTS

EXAMPLE = Path(__file__).parents[3] / "examples" / "what-if" / "data-parallel.json"
ORACLE = Path(__file__).parents[1] / "controllers" / "astrasim" / "oracle.json"


def invoke(*arguments: str, stdin: str | None = None) -> tuple[int, str]:
    """Run the command. Return its exit status and its output."""
    result = CliRunner().invoke(app, ["what-if", *arguments], input=stdin)
    return result.exit_code, result.output


def some_cases() -> list[Any]:
    """Return the first case, and the first one that does not finish."""
    found = json.loads(ORACLE.read_text())["cases"]
    return [found[0], next(one for one in found if one["result"]["status"] == "stuck")]


def test_the_example_has_figures_of_each_rank() -> None:
    code, output = invoke(str(EXAMPLE))
    assert code == 0, output
    assert output.split()[:2] == ["RANKS", "FINISH"] and "0-7" in output


INFRA = ("--infra", "two-racks.infragraph.yaml", "--link", "rack-uplink=25,1000")


@pytest.mark.parametrize(
    "arguments",
    [
        ["data-parallel.json"],
        ["placements.json"],
        ["torus.json"],
        ["two-racks.json"],
        ["two-racks.json", *INFRA],
    ],
)
def test_the_examples_have_the_output_of_the_page(arguments: list[str]) -> None:
    files = [str(EXAMPLE.parent / one) if (EXAMPLE.parent / one).exists() else one for one in arguments]
    result = CliRunner().invoke(app, ["what-if", *files])
    assert result.exit_code == 0, result.output
    page = (EXAMPLE.parents[2] / "docs" / "what-if.md").read_text()
    assert f"```output\n{result.stdout}```" in page


def test_json_output_has_each_point_of_a_sweep() -> None:
    code, output = invoke(str(EXAMPLE.parent / "placements.json"), "-o", "json")
    found = json.loads(output)
    points, step = found["points"], found["placementStep"]
    assert code == 0 and len(points) == 12
    assert Step.model_validate(step).gradient_bytes == 800_000_000 and step["backwardMilliseconds"] == 60
    assert points[0]["placement"] == "1 rack" and points[0]["stepSeconds"] > 0.095
    assert points[-1]["bottleneckLink"]["name"] == "rack-0 -> spine"


def test_a_step_may_come_from_traces_beside_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    made = ["trace", "generate", "--data", "2", "--layers", "2", "--out", str(folder)]
    assert CliRunner().invoke(app, made).exit_code == 0
    file = tmp_path / "step.json"
    file.write_text(json.dumps({"step": {"trace": "traces"}, "links": {"hostGBps": 1}}))
    code, output = invoke(str(file))
    assert code == 0 and "STEP ms" in output and "Fastest" not in output
    assert 'spec.placement.step: {"forwardMilliseconds": 0,' in output
    assert '"gradientBytes": 8388608' in output
    file.write_text(json.dumps({"step": {"trace": "missing"}, "links": {"hostGBps": 1}}))
    code, output = invoke(str(file))
    assert code == 1 and f"{tmp_path / 'missing'}" in output
    assert CliRunner().invoke(app, [*made, "--tensor", "2"]).exit_code == 0
    file.write_text(json.dumps({"step": {"trace": "traces"}, "links": {"hostGBps": 1}}))
    code, output = invoke(str(file))
    assert code == 1 and "step.trace:" in output and "not data-parallel" in output


def test_json_output_has_the_times_of_each_node() -> None:
    code, output = invoke("-", "-o", "json", stdin=json.dumps(some_cases()[0]))
    found = json.loads(output)
    assert code == 0 and found["finished"] and found["findings"] == []
    assert len(found["ranks"]) == 8 and found["messages"] == 8 * 4 * 14
    assert found["ranks"][3]["nodesNs"] == {"1": [0, 117780]}


def test_a_simulation_that_is_stuck_has_findings_and_exit_status_1() -> None:
    code, output = invoke("-", stdin=json.dumps(some_cases()[1]))
    assert code == 1
    assert "does not finish" in output and "Stuck: rank 0, node 1: halving-doubling needs" in output


def test_an_oracle_without_differences_has_exit_status_0(tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": some_cases()}))
    assert invoke("--oracle", str(file)) == (0, "2 cases, 0 differ\n")


def test_each_case_that_differs_is_printed(tmp_path: Path) -> None:
    first, second = some_cases()
    first["system"]["endpoint-delay"] += 1
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": [first, second]}))
    code, output = invoke("--oracle", str(file))
    lines = output.splitlines()
    assert code == 1 and len(lines) == 2 and lines[1] == "2 cases, 1 differ"
    assert lines[0].startswith("p001: finish_ns of rank 0 is 117840, not 117780;")
    code, output = invoke("--oracle", str(file), "--output", "json")
    assert code == 1 and [one["case"] for one in json.loads(output)["differing"]] == ["p001"]


def test_a_budget_of_events_ends_a_simulation() -> None:
    code, output = invoke("-", "--events", "5", stdin=json.dumps(some_cases()[0]))
    assert code == 1 and "Budget: the run needs more than its 5 events" in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "-: is no valid JSON"),
        ("[" * 100_000, "-: is no valid JSON"),
        ("[]", "-: file: must be a mapping, is a list"),
        ("{}", "-: network: is required"),
    ],
)
def test_a_file_that_is_no_simulation_is_refused(text: str, message: str) -> None:
    code, output = invoke("-", stdin=text)
    assert code == 1 and f"error: {message}" in output


@pytest.mark.parametrize(
    ("name", "content"), [("rank.0.et", b"\x0a\x05\xff\xfe"), ("net.yaml", b"name: a\n")]
)
def test_a_file_of_another_kind_names_the_command_that_takes_it(
    name: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    code, output = invoke(str(file))
    assert code == 1 and "a Chakra .et file is for `convoy trace predict`" in output


def test_a_file_must_exist_and_must_not_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing.json"
    assert f"error: {missing}: No such file" in invoke(str(missing))[1]
    monkeypatch.setattr(what_if, "MOST_BYTES", 1 << 20)
    large = tmp_path / "large.json"
    large.write_text(" " * ((1 << 20) + 1))
    assert f"error: {large}: is larger than 1 MiB" in invoke("--oracle", str(large))[1]


def infra(folder: Path) -> Path:
    """Return an InfraGraph file of three servers at one switch. Only the cables have a bandwidth."""
    file = folder / "infra.yaml"
    file.write_text(BLUEPRINTS["single tier"]().serialize("yaml"))
    return file


LINKS = [f"--link={name}=50,100" for name in ("pcie", "fabric", "nvlink", "ic")]
STEP: Any = {
    "backend": "fairShare",
    "system": {"preferred-dataset-splits": 1, "local-mem-bw": 50, "all-reduce-implementation": ["ring"]},
    "workload": {"all_ranks": [{"id": 1, "type": "coll", "comm_type": "all_reduce", "comm_size": 1 << 20}]},
}


def test_a_step_runs_on_an_infragraph_and_its_busiest_link_is_named(tmp_path: Path) -> None:
    arguments = ["-", "--infra", str(infra(tmp_path)), *LINKS]
    code, output = invoke(*arguments, stdin=json.dumps(STEP))
    assert code == 0 and "\n11 " in output, output
    assert "links without a latency, simulated with 0 ns: switch-link" in output
    assert "Busiest link: server." in output
    code, output = invoke(*arguments, "-o", "json", stdin=json.dumps(STEP))
    found = json.loads(output[output.index("{") :])
    assert code == 0 and found["bottleneckLink"] == found["links"][0] and len(found["links"]) == 8
    assert 0 < found["links"][-1]["utilisation"] <= found["bottleneckLink"]["utilisation"] < 1


def test_an_infragraph_can_have_logical_dimensions(tmp_path: Path) -> None:
    arguments = ["-", "--infra", str(infra(tmp_path)), *LINKS]
    two = {**STEP, "system": {**STEP["system"], "all-reduce-implementation": ["ring", "ring"]}}
    code, output = invoke(*arguments, stdin=json.dumps({**two, "network": {"dimensions": [4, 3]}}))
    assert code == 0, output
    code, output = invoke(*arguments, stdin=json.dumps(two))
    assert code == 1 and "has 2 implementations, but the network has 1 dimensions" in output
    code, output = invoke(*arguments, stdin=json.dumps({**STEP, "npus": 8}))
    assert code == 1 and "-: npus: must be 12, the number of ranks of the network" in output


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([], "infrastructure.links: no bandwidth in bits or bytes per second: fabric, ic, nvlink, pcie;"),
        (["--link=pcie"], "--link pcie: must be NAME=GBPS or NAME=GBPS,NS"),
        (["--link=pcie=a"], "--link pcie=a: must be NAME=GBPS or NAME=GBPS,NS"),
        (["--link=pcie=0"], "--link pcie: must be above 0, is 0.0"),
        (["--link=pcie=nan"], "--link pcie: must be at most"),
        (["--link=pcie=1,-1"], "--link pcie: must be at least 0, is -1.0"),
        ([*LINKS, "--link=wire=1"], "infrastructure.links: no edge uses a link 'wire'"),
    ],
)
def test_settings_of_links_must_be_complete_and_valid(links: list[str], message: str, tmp_path: Path) -> None:
    code, output = invoke("-", "--infra", str(infra(tmp_path)), *links, stdin=json.dumps(STEP))
    assert code == 1 and message in output, output


def test_an_infragraph_needs_a_step() -> None:
    for arguments, message in (
        (["--oracle", "a.json", "--infra", "b.yaml"], "--infra needs FILE"),
        (["a.json", "--link", "pcie=1"], "--link needs --infra FILE"),
    ):
        code, output = invoke(*arguments)
        assert code == 1 and f"error: {message}" in output


def test_exactly_one_file_is_needed() -> None:
    for arguments in ([], ["a.json", "--oracle", "b.json"]):
        code, output = invoke(*arguments)
        assert code == 1 and "error: what-if needs either FILE or --oracle FILE" in output


LOAD_STORE = EXAMPLE.with_name("load-store.json")


def small(**changes: Any) -> str:
    """Return a file of the load/store mode."""
    body: dict[str, Any] = {"loadStore": {"bytes": 4096, "gpu": {"workgroups": 4}, "links": {"gpus": 4}}}
    return json.dumps(body | changes)


def test_a_collective_of_cache_lines_has_its_time_and_its_parts() -> None:
    code, output = invoke("-", stdin=small())
    heads, values = (line.split() for line in output.splitlines())
    assert code == 0 and heads[:2] == ["TIME", "ns"] and heads[-2:] == ["CONTROL", "ns"]
    code, output = invoke("-", "-o", "json", stdin=small())
    found = json.loads(output)
    assert code == 0 and found["receivedBytes"] == 3 * 4096 and found["events"] > 0
    assert sum(found["partsNs"].values()) == pytest.approx(found["timeNs"])
    assert f"{found['timeNs']:,.1f}" == values[0]


def test_a_sweep_shows_the_crossover_and_its_curve() -> None:
    axes = {"algorithm": ["oneShot", "ring"], "bytes": [1024, 4096, 1 << 22], "outstanding": [128]}
    text = small(sweep=axes).replace('"bytes": 4096, ', '"mode": "analytical", ')
    code, output = invoke("-", stdin=text)
    assert code == 0
    lines = output.splitlines()
    assert lines[0].split() == ["OUTSTANDING", "BYTES", "oneShot", "ns", "ring", "ns", "FASTEST"]
    assert [line.split()[-1] for line in lines[1:4]] == ["oneShot", "oneShot", "ring"]
    assert lines[5].split()[:5] == ["OUTSTANDING", "BELOW", "ABOVE", "CROSSOVER", "bytes"]
    assert "time of oneShot / time of ring, by log2 of the bytes; outstanding 128" in output
    code, output = invoke("-", "-o", "json", stdin=text)
    found = json.loads(output)
    (crossover,) = found["crossovers"]
    assert code == 0 and len(found["points"]) == 6
    assert (crossover["slower"], crossover["faster"]) == ("oneShot", "ring")
    assert 4096 < crossover["bytes"] < 1 << 22


def test_the_budget_of_events_refuses_a_load_store_run_before_it_starts() -> None:
    code, output = invoke("-", "--events", "100", stdin=small())
    assert code == 1 and "error: -: loadStore.bytes: the run needs about" in output


def test_the_load_store_example_is_valid() -> None:
    body = json.loads(LOAD_STORE.read_text())
    body["loadStore"]["mode"] = "analytical"
    code, output = invoke("-", stdin=json.dumps(body))
    assert code == 0, output
    assert [line.split()[-1] for line in output.splitlines()[1:11]] == ["oneShot"] * 4 + ["twoShot"] * 6
