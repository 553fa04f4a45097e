"""Tests of the selected build of PyTorch, depending on wheel folders, the index and CONVOY_CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.images import wheelhouse
from e2e.setup import torch_source
from e2e.setup.torch_source import CPU_INDEX, pip_arguments

ROOT = Path(__file__).parents[3]
PLATFORM = "manylinux_2_28_x86_64"
FOLDER = "FOLDER"
INDEX = ["--extra-index-url", CPU_INDEX, "torch===2.13.0+cpu"]


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for wheels. torch 2.13.0 is pinned, the index does not answer, and no other
    environment variable selects wheels.
    """
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torchvision==0.1\ntorch==2.13.0\n")
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setattr(torch_source, "CONSTRAINTS", constraints)
    monkeypatch.setattr(torch_source, "index_answers", lambda timeout: False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("CONVOY_CUDA", raising=False)
    monkeypatch.setenv("CONVOY_WHEELS", str(folder))
    return folder


def fill(folder: Path, *versions: str) -> None:
    for version in versions:
        (folder / f"torch-{version}-{PLATFORM}.whl").touch()


@pytest.mark.parametrize(
    ("versions", "cuda", "plain"),
    [
        (["2.13.0+cpu-cp311-cp311"], "", [FOLDER, "torch===2.13.0+cpu"]),
        (["2.13.0+cu130-cp311-cp311", "2.13.0+cpu-cp311-cp311"], "", [FOLDER, "torch===2.13.0+cpu"]),
        (["2.13.0-cp311-cp311"], "", INDEX),
        (["2.13.0+cu130-cp311-cp311"], "", INDEX),
        (["2.12.0+cpu-cp311-cp311"], "", INDEX),
        (["2.13.01+cpu-cp311-cp311"], "", INDEX),
        (["2.13.0+cpu-cp312-cp312"], "", INDEX),
        ([], "", INDEX),
        ([], "0", INDEX),
        ([], "1", ["torch===2.13.0"]),
        (["2.13.0+cpu-cp311-cp311"], "1", ["torch===2.13.0"]),
        (["2.13.0+cpu-cp311-cp311", "2.13.0+cu130-cp311-cp311"], "1", [FOLDER, "torch===2.13.0+cu130"]),
    ],
)
def test_pip_installs_the_matching_build_for_cpus(
    versions: list[str], cuda: str, plain: list[str], wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_source, "index_answers", lambda timeout: True)
    monkeypatch.setenv("CONVOY_CUDA", cuda)
    fill(wheels, *versions)
    wanted = ["--find-links", str(wheels), plain[1]] if plain[0] == FOLDER else plain
    assert pip_arguments("cp311") == wanted


def test_every_named_folder_is_searched(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    fill(other, "2.13.0+cpu-cp311-cp311")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'missing'} {other}")
    assert pip_arguments("cp311") == ["--find-links", str(other), "torch===2.13.0+cpu"]


def test_without_a_build_for_cpus_only_images_fail_and_the_error_has_the_remedy(wheels: Path) -> None:
    fill(wheels, "2.13.0-cp311-cp311", "2.13.0+cpu-cp312-cp312")
    assert pip_arguments("cp311") == [], "pip installs the registry's wheel"
    with pytest.raises(ClusterError) as raised:
        wheelhouse.dependencies(["numpy>=2", "torch==2.13.0"], Progress())
    for part in ("torch-2.13.0+cpu-cp311-*.whl", "Set CONVOY_WHEELS", CPU_INDEX, "CONVOY_CUDA=1"):
        assert part in str(raised.value)


def test_the_project_pins_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_source, "CONSTRAINTS", ROOT / "constraints.txt")
    assert f"torch=={torch_source.pinned_version()}" in (ROOT / "pyproject.toml").read_text()
