"""Tests of the models that the engine loads: quantised files, floats, random weights, and the cache."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client import generate_latest
from tests.unit.workloads.tilefuse.quantised_models import engine, model, params, save

from convoy_workloads.engines.tilefuse import cache, generation, packed_folder, quantised_files
from convoy_workloads.engines.tilefuse.engine import QuantisedLanguageModel
from convoy_workloads.engines.tilefuse.generation import Report
from convoy_workloads.engines.tilefuse.quantise import Request
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.protocol import ModelCard, ModelError, Prompt, Sampling
from convoy_workloads.tensors.safetensors import SafetensorsFile, write_tensors

FAMILIES = ("gpt", "llama")


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("floats")
    return {family: save(model(family), root / family) for family in FAMILIES}


@pytest.fixture(scope="module")
def made(floats: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Return quantised generations by family and scheme."""
    root, found = tmp_path_factory.mktemp("quantised"), {}
    for family, scheme in (("gpt", "w4a16"), ("llama", "w4a16"), ("llama", "w8a16")):
        found[family, scheme] = root / f"{family}-{scheme}"
        wanted = Request(scheme, 32, 4, False, torch.bfloat16)
        report(generation.make(floats[family], found[family, scheme], wanted, lambda _: None))
    return found


def report(found: Report) -> None:
    assert abs(found.loss_change) < (0.1 if found.scheme == "w4a16" else 0.01)
    assert found.bytes_before > (3 if found.scheme == "w4a16" else 2) * found.bytes_after


def card(path: Path | None, **values: Any) -> ModelCard:
    return QuantisedLanguageModel(params(**values), path).load(lambda: None)


def text(made: QuantisedLanguageModel) -> list[tuple[int, float]]:
    assert made.admit(Prompt(0, (5, 6, 7, 8), Sampling(6, 1, logprobs=1)))
    found = [(one.token, one.logprob) for _ in range(6) for one in made.step()]
    made.cancel(0)
    return found


def copy(folder: Path, to: Path, packed: bool = False) -> Path:
    return shutil.copytree(folder, to, ignore=None if packed else shutil.ignore_patterns("packed"))


@pytest.mark.parametrize(("family", "scheme"), [("gpt", "w4a16"), ("llama", "w4a16"), ("llama", "w8a16")])
def test_a_quantised_generation_is_mapped_and_gives_the_same_without_its_packed_form(
    family: str, scheme: str, made: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    folder, quant = made[family, scheme], {"scheme": scheme}
    entries = len(list(cache.folder().glob("*")))
    mapped = engine(folder, quant=quant)
    mapped.self_test()
    assert len(list(cache.folder().glob("*"))) == entries, "nothing was packed"
    again = engine(copy(folder, tmp_path / "model"), quant=quant)
    assert text(again) == text(mapped)
    assert len(set(text(mapped))) > 1


def test_the_card_has_the_quantisation_and_the_kernel(made: dict[tuple[str, str], Path]) -> None:
    facts = card(made["gpt", "w4a16"]).facts
    assert facts["trained"] is True and facts["quantised_by"] == "convoy quantize"
    assert facts["quantisation"]["scheme"] == "w4a16" and facts["quantisation"]["group_size"] == 32  # type: ignore[index]
    assert facts["kernel"] == {
        "name": "w4a16", "instruction_set": "twin", "fallback": False, "not_used": {},
    }  # fmt: skip


def test_a_model_in_floats_is_quantised_once(
    floats: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = card(floats["gpt"])
    assert "quantised at load with 2 samples" in found.source and found.facts["trained"] is True
    first = text(engine(floats["gpt"]))
    monkeypatch.setattr(packed_folder, "write", lambda *_: pytest.fail("the model is packed already"))
    assert text(engine(floats["gpt"])) == first


def test_random_weights_are_labelled() -> None:
    found = card(None, architecture="llama")
    assert found.facts["trained"] is False
    assert "the model is not trained; quantised at load, to the nearest codes" in found.source
    assert "quantised" not in card(None, quant={"scheme": "bf16"}).source


def test_the_metrics_name_the_kernel(made: dict[tuple[str, str], Path]) -> None:
    metrics = Metrics("tilefuse", "m", "j")
    served = QuantisedLanguageModel(params(), made["gpt", "w4a16"])
    served.register(metrics)
    served.load(lambda: None)
    text(served)
    lines = generate_latest(metrics.registry).decode().splitlines()
    labels = 'engine="tilefuse",job="j",kernel="w4a16"'
    assert any(one.startswith("convoy_kernel_info{") and 'instruction_set="twin"' in one for one in lines)
    assert any(
        one.startswith(f"convoy_kernel_bytes_total{{{labels}") and not one.endswith(" 0.0") for one in lines
    )
    shapes = [one for one in lines if one.startswith("convoy_kernel_seconds_total")]
    assert {'shape="192x64"', 'shape="64x64"'} <= {one[one.index("shape") : one.index("}")] for one in shapes}


def change_config(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = folder / "config.json"
        body = json.loads(file.read_text())
        change(body)
        file.write_text(json.dumps(body))

    return apply


def change_tensors(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = folder / quantised_files.WEIGHTS
        opened = SafetensorsFile(file)
        tensors = {name: opened.tensor(name).clone() for name in opened.entries}
        file.unlink()
        change(tensors)
        write_tensors(file, tensors, {})

    return apply


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        (
            "gpt",
            change_config(lambda one: one["quantization_config"].update(version="gemv")),
            'version: "gemv"',
        ),
        (
            "gpt",
            change_config(lambda one: one.update(quantization_config=[])),
            "quantization_config: must be an obj",
        ),
        ("gpt", change_config(lambda one: one.update(width=True)), "width: True must be a positive integer"),
        (
            "gpt",
            change_config(lambda one: one.pop("heads")),
            "config.json: heads: None must be a positive integer",
        ),
        ("gpt", change_config(lambda one: one.update(heads=3)), "heads: 3 must divide width=64"),
        ("gpt", change_config(lambda one: one.update(model_type="bert")), "model_type 'bert' is not served"),
        (
            "gpt",
            change_tensors(lambda one: one.pop("blocks.1.out.scales")),
            "lacks the tensor blocks.1.out.scales",
        ),
        ("gpt", change_tensors(lambda one: one.pop("norm.weight")), "lacks the tensor norm.weight"),
        (
            "llama",
            change_tensors(lambda one: one["model.layers.0.mlp.up_proj.scales"].fill_(float("inf"))),
            r"model\.layers\.0\.mlp\.up_proj\.scales has the scale inf at \[0, 0\]",
        ),
        (
            "llama",
            change_tensors(
                lambda one: one.update({"model.layers.1.self_attn.k_proj.weight": torch.zeros(1)})
            ),
            "k_proj.weight is not quantised. All matrices of the layers must be",
        ),
        (
            "llama",
            change_tensors(
                lambda one: one.update(
                    {
                        f"model.layers.0.mlp.down_proj.{end}": one[f"model.layers.0.self_attn.k_proj.{end}"]
                        for end in ("qweight", "qzeros", "scales")
                    }
                )
            ),
            r"down_proj\.qweight has 32 outputs, expected 64",
        ),
    ],
)
def test_a_quantised_model_that_does_not_fit_is_refused(
    family: str,
    change: Callable[[Path], None],
    words: str,
    made: dict[tuple[str, str], Path],
    tmp_path: Path,
) -> None:
    folder = copy(made[family, "w4a16"], tmp_path / "model")
    change(folder)
    with pytest.raises(ModelError, match=words):
        card(folder)


def test_the_parameters_must_fit_the_files(made: dict[tuple[str, str], Path]) -> None:
    folder = made["llama", "w8a16"]
    with pytest.raises(ModelError, match=r"params\.quant\.scheme: w4a16 differs .* set it to w8a16"):
        card(folder)
    with pytest.raises(ModelError, match=r"params\.quant\.scheme: bf16 does not fit .* set it to w8a16"):
        card(folder, quant={"scheme": "bf16"})


def test_lm_refuses_a_quantised_model(made: dict[tuple[str, str], Path]) -> None:
    from convoy_workloads.engines.lm import models
    from convoy_workloads.engines.lm.params import Params

    with pytest.raises(ModelError, match="is quantised: serve it with the engine tilefuse"):
        models.load(made["gpt", "w4a16"], Params(), torch.device("cpu"), lambda: None)


def test_an_instruction_set_that_the_processor_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from convoy_workloads.kernels import dispatch, instruction_sets

    monkeypatch.setattr(dispatch, "_selections", {})
    monkeypatch.setattr(instruction_sets, "cpu_flags", frozenset)
    with pytest.raises(
        ModelError, match=r"params\.quant\.isa: kernel w4a16 cannot use avx2: this CPU lacks avx2"
    ):
        card(None, quant={"isa": "avx2"})
    facts = card(None, quant={"isa": "auto"}).facts["kernel"]
    assert facts["instruction_set"] == "twin" and facts["fallback"] is True  # type: ignore[index]


def test_a_packed_form_of_other_weights_is_not_used(
    made: dict[tuple[str, str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy(made["llama", "w4a16"], tmp_path / "model", packed=True)
    change_tensors(lambda one: one["model.norm.weight"].mul_(2))(folder)
    assert text(engine(folder)) != text(engine(made["llama", "w4a16"]))
    assert "does not belong to the weights beside it; they are packed again" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["0001.packed", "others.safetensors"])
def test_a_damaged_file_is_found(name: str, made: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    folder = copy(made["gpt", "w4a16"], tmp_path / "model", packed=True)
    file = folder / "packed" / name
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ModelError, match=f"{name}.*digest"):
        card(folder)


def test_whole_files_of_another_model_are_found(made: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    """A copy over an older model that was interrupted leaves such a folder."""
    packed = copy(made["gpt", "w4a16"], tmp_path / "model", packed=True) / "packed"
    shutil.copyfile(packed / "0005.packed", packed / "0001.packed")
    with pytest.raises(ModelError, match=r"0001\.packed: it has other weights than those that belong here"):
        card(packed.parent)


def test_parts_of_models_that_no_process_makes_any_more_are_deleted(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    for name in ("abandoned", "locked", "young"):
        (root / f".{name}").mkdir()
        (root / f".{name}" / "0000.packed").touch()
        if name != "young":
            os.utime(root / f".{name}", (0, 0))
    lock = os.open(root / ".locked", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(ModelError, match="cannot be read"):
        cache.packed("a", lambda folder: (folder / "0000.packed").touch(), root)
    os.close(lock)
    assert sorted(one.name for one in root.iterdir()) == [".locked", ".young", "a"]


def test_the_cache_keeps_the_models_that_were_used_last(tmp_path: Path) -> None:
    index = packed_folder.Index(
        version=packed_folder.VERSION, layout="n16k2", source="", scheme="w4a16", group_size=32,
        dtype="bfloat16", family="gpt", form={}, matrices={}, digests={}, others="", facts={},
    )  # fmt: skip
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / packed_folder.INDEX).write_text(index.model_dump_json())

    root = tmp_path / "cache"
    for number, key in enumerate(("a", "b", "c", "d", "a", "e")):
        cache.packed(key, make, root)
        os.utime(root / key / packed_folder.INDEX, (number, number))
    assert sorted(one.name for one in root.iterdir()) == ["a", "c", "d", "e"]
    assert len(made) == 5
    (root / "c" / packed_folder.INDEX).write_text("{}")
    cache.packed("c", make, root)
    assert len(made) == 6 and packed_folder.read_index(root / "c") is not None
    root.chmod(0o777)
    with pytest.raises(ModelError, match=r"cannot be written to .* Set XDG_CACHE_HOME"):
        cache.packed("z", make, root)
