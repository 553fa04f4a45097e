"""Tests of `convoy quantize`: a quantised generation from a local folder and from a store, and its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.unit.agents import fault_proxy
from tests.unit.cli.saved_job import Bucket
from tests.unit.cli.test_checkpoint_export import cut, in_bytes
from tests.unit.workloads.tilefuse.quantised_models import gpt, save
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy_workloads.engines.tilefuse import loading
from convoy_workloads.engines.tilefuse.packed_linear import Counters
from convoy_workloads.engines.tilefuse.params import Params
from convoy_workloads.runtime.tiers import values
from convoy_workloads.tensors.safetensors import SafetensorsFile, write_tensors

SHORT = ("--group-size", "32", "--calibration-samples", "2")


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["quantize", *map(str, arguments)])
    return done.exit_code, done.output


def test_a_local_model_becomes_a_folder_that_tilefuse_serves(tmp_path: Path) -> None:
    source, to = save(gpt(), tmp_path / "model"), tmp_path / "quantised"
    code, text = run("--model", source, "--to", to, *SHORT)
    assert code == 0, text
    assert "held-out loss" in text and "times smaller" in text and f"wrote {to}" in text
    assert "blocks.1.narrow" in text
    assert sorted(one.name for one in to.iterdir()) == [
        "config.json",
        "model.safetensors",
        "packed",
        "quantisation.json",
    ]
    report = json.loads((to / "quantisation.json").read_text())
    assert len(report["matrices"]) == 8 and report["bytes_after"] < report["bytes_before"] / 3
    assert json.loads((to / "config.json").read_text())["quantization_config"]["quant_method"] == "awq"
    params = Params.model_validate({"threads": 1, "quant": {"isa": "twin"}})
    assert loading.load(to, params, Counters(), lambda: None).facts["trained"] is True
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model", "quantised"], (
        "no temporary files are left"
    )
    code, text = run("--model", source, "--to", to, *SHORT)
    assert code == 1 and "is not empty" in text


def test_a_tensor_with_nan_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    source = save(gpt(), tmp_path / "model")
    file = source / "model.safetensors"
    opened = SafetensorsFile(file)
    tensors = {name: opened.tensor(name).clone() for name in opened.entries}
    tensors["blocks.1.widen.weight"][3, 5] = torch.nan
    file.unlink()
    write_tensors(file, tensors, {})
    code, text = run("--model", source, "--to", tmp_path / "quantised", *SHORT)
    assert code == 1 and "tensor blocks.1.widen.weight has values that are not finite" in text
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give the NAME of a TrainingJob or --model PATH, and not both"),
        (("job", "--model", "x"), "give the NAME of a TrainingJob or --model PATH, and not both"),
        (("--model", "x", "--group-size", "48"), "--group-size 48: must be a multiple of 32"),
        (("--model", "/absent"), "/absent does not exist"),
    ],
)
def test_bad_arguments_say_what_to_do(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    code, text = run(*arguments, "--to", tmp_path / "to")
    assert code == 1 and words in text
    assert not list(tmp_path.iterdir())


def test_a_group_size_that_does_not_fit_names_one_that_does(tmp_path: Path) -> None:
    code, text = run("--model", save(gpt(), tmp_path / "model"), "--to", tmp_path / "to")
    assert code == 1 and "no multiple of group_size=128: set group_size to 64 or 32" in text


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


def test_a_checkpoint_of_a_job_is_quantised(
    server: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bucket = Bucket(f"http://127.0.0.1:{server}", monkeypatch)
    state = {name: one for name, one in gpt().model.state_dict().items() if name != "head.weight"}
    wanted = [(f"model.{name}", (0,) * one.dim(), tuple(one.shape), one) for name, one in state.items()]
    bucket.save((2, 7), {"0": cut(in_bytes(wanted, {"extra.shape.heads": values.dumps(4)}))})
    code, text = run("job", "--to", tmp_path / "quantised", *SHORT)
    assert code == 0, text
    config = json.loads((tmp_path / "quantised" / "config.json").read_text())
    assert (config["model_type"], config["heads"], config["width"]) == ("gpt", 4, 64)
    facts = json.loads(SafetensorsFile(tmp_path / "quantised" / "model.safetensors").metadata["generation"])
    assert facts["step"] == 7
