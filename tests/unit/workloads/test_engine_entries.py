"""Tests of the engines' entries, and of everything that is generated from the entries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from convoy.cli.manifest import documents, parse, problems
from convoy_crds.params import params_error, schema_error
from convoy_workloads.engines.catalogue import ROOT, catalogue, engine, rendered
from convoy_workloads.engines.entry import EngineEntry
from convoy_workloads.engines.families import FAMILIES, Family
from convoy_workloads.engines.registry import ENGINES

CHART = ROOT / "charts" / "convoy"
EACH = pytest.mark.parametrize("entry", ENGINES, ids=lambda entry: entry.name)
BENCHED = [entry for entry in ENGINES if not entry.tool]
TOY = """
from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description="Counts.",
    role_kind="Training",
    family="workloads",
    example="toy-engine.yaml",
    small={"steps": 3},
    metrics=(Metric("counted", help="What was counted."),),
    paper="[On counting](https://example.org/counting)",
)
"""
PARAMS = """
from pydantic import BaseModel


class Params(BaseModel):
    steps: int = 10
"""
EXAMPLE = """\
apiVersion: convoy.dev/v1alpha1
kind: TrainingJob
metadata: {name: toy}
spec:
  engine: {name: toy-engine, params: {steps: 5}}
  roles: [{name: worker, replicas: 2}]
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineEntry:
    """A test engine that consists only of a folder, in its own checkout."""
    folder = tmp_path / "toy_engine"
    folder.mkdir()
    files = {
        "__init__.py": TOY,
        "params.py": PARAMS,
        "README.md": "# toy\n\nCounts.\n",
        "toy-engine.yaml": EXAMPLE,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (tmp_path / "mkdocs.yml").write_text("nav:\n  # engines: here\n  # engines: end\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import toy_engine  # type: ignore[import-not-found]

    entry: EngineEntry = toy_engine.ENGINE
    return entry


def test_an_engine_is_a_folder_and_a_line_of_the_list(toy: EngineEntry, tmp_path: Path) -> None:
    files = {str(path.relative_to(tmp_path)): text for path, text in rendered([toy], tmp_path).items()}
    assert set(files) == {
        "charts/convoy/files/engines/toy-engine.yaml",
        "docs/engines/index.md",
        "docs/engines/toy-engine.md",
        "examples/toy-engine.yaml",
        "mkdocs.yml",
    }
    spec = yaml.safe_load(files["charts/convoy/files/engines/toy-engine.yaml"])["spec"]
    assert spec["image"] == "workloads"
    assert spec["command"] == ["python", "-m", "toy_engine.engine"]
    assert spec["paramsSchema"]["properties"]["steps"]["default"] == 10
    assert spec["metrics"] == [{"name": "counted", "unit": "", "help": "What was counted."}]
    assert "  - toy-engine: engines/toy-engine.md\n" in files["mkdocs.yml"]
    page = files["docs/engines/toy-engine.md"]
    assert "# toy" in page and "| `steps` | integer | `10` |" in page and "| `counted` |" in page
    assert "[On counting](https://example.org/counting)" in page
    assert "| [toy-engine](toy-engine.md) | Training | Counts. |" in files["docs/engines/index.md"]
    assert files["examples/toy-engine.yaml"] == EXAMPLE
    assert wrong(EXAMPLE, toy) == []
    assert wrong(EXAMPLE.replace("5", "five"), toy) == ["'five' is not of type 'integer'"]


def wrong(example: str, entry: EngineEntry) -> list[str]:
    """Return the errors in the engine parameters of the manifest `example`."""
    manifests = [parse(body) for body in documents(example)]
    named = [one.job.spec.engine for one in manifests if one.job and one.job.spec.engine]
    served = [one.serving.spec.roles for one in manifests if one.serving]
    named += [role.engine for roles in served for role in roles if role.engine]
    if entry.internal:  # Convoy adds the engine's pods to the job, which names other engines.
        assert named and entry.name not in {one.name for one in named}
        return []
    assert {one.name for one in named} == {entry.name}
    errors = [params_error(engine(entry).spec.params_schema, one.params) for one in named]
    return [error[1] for error in errors if error]


def test_engines_have_unique_names_and_existing_families() -> None:
    assert len(catalogue()) == len(ENGINES) == len({entry.example for entry in ENGINES})
    assert {entry.family for entry in ENGINES} == {family.name for family in FAMILIES}


@EACH
def test_the_example_is_valid_and_runs_its_engine(entry: EngineEntry) -> None:
    text = (entry.folder / entry.example).read_text()
    assert wrong(text, entry) == []
    manifests = [parse(body, number) for number, body in enumerate(documents(text), 1)]
    assert [problem for one in manifests for problem in problems(one, manifests)] == []


@EACH
def test_the_engine_schema_accepts_the_parameters_of_small_runs(entry: EngineEntry) -> None:
    schema = engine(entry).spec.params_schema
    assert schema_error(schema) is None
    assert params_error(schema, entry.small) is None
    entry.module("params").Params.model_validate(dict(entry.small))


@EACH
def test_the_engine_readme_starts_with_the_engine_name(entry: EngineEntry) -> None:
    assert (entry.folder / "README.md").read_text().startswith(f"# {entry.name}\n")


def test_no_generated_file_outlives_its_engine() -> None:
    files = rendered()
    for folder in (CHART / "files" / "engines", ROOT / "docs" / "engines"):
        assert {path for path in folder.iterdir() if path not in files} == set()


def test_the_list_is_imported_without_torch_and_training_loops() -> None:
    code = "import sys, json, convoy_workloads.engines.registry; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert not {"torch", "numpy", "pydantic"} & set(loaded)
    assert not [name for name in loaded if name.endswith((".engine", ".params", ".bench"))]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_known_to_the_chart_and_has_a_recipe(family: Family) -> None:
    images = yaml.safe_load((CHART / "values.yaml").read_text())["images"]
    assert images[family.name] == family.repository
    assert images["digests"][family.name] == ""
    assert (ROOT / "images" / f"{family.name}.Dockerfile").is_file()


@pytest.mark.parametrize("entry", BENCHED, ids=lambda entry: entry.name)
def test_the_engine_benchmark_has_its_own_arms_in_both_sizes(entry: EngineEntry, tmp_path: Path) -> None:
    bench = entry.module("bench").BENCH
    assert set(bench.sizes) == {"small", "full"}
    for options in bench.sizes.values():
        arms = bench.arms(options).all
        assert len({arm.name for arm in arms}) == len(arms) >= 3
        assert all(arm.command(tmp_path) for arm in arms)
        assert bench.measures(options)
    assert bench.equal
