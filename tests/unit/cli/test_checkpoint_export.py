"""Tests of `convoy checkpoint export`: tensors whose parts are in several shards are written, and other
programs read them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.agents import fault_proxy
from tests.unit.cli.saved_job import Bucket, noise
from torch.distributed.checkpoint import FileSystemReader, state_dict_loader

from convoy_workloads.runtime.tiers import shard, values
from convoy_workloads.tensors.safetensors import SAFE_NAMES
from convoy_workloads.tensors.whole import ShardError, Whole

Wanted = list[tuple[str, tuple[int, ...], tuple[int, ...], torch.Tensor]]
"""Parts of tensors. Each has a name, offsets, the shape of the whole tensor, and the values of the part."""

WEIGHT = torch.arange(12, dtype=torch.float32).reshape(4, 3)
STATE = {
    "model.weight": WEIGHT,
    "model.bias": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "model.mask": torch.tensor([True, False, True]),
    "model.count": torch.tensor(7, dtype=torch.int64),
    "model.none": torch.empty((0, 3), dtype=torch.float16),
}
VALUES = {"step": 7, "rank.0": {"random": (1, b"x"), "epoch": 2}}


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(f"http://127.0.0.1:{server}", monkeypatch)


def in_bytes(wanted: Wanted, texts: dict[str, str]) -> bytes:
    rows = [(name, (offsets, tuple(one.shape)), shape, one.dtype) for name, offsets, shape, one in wanted]
    layout = shard.lay_out(rows, 4096)
    target = bytearray(layout.size)
    shard.write(memoryview(target), layout, [one for *_, one in wanted], texts, {"step": 7})
    return bytes(target)


def cut(data: bytes) -> list[bytes]:
    return [data[at : at + 50_000] for at in range(0, len(data), 50_000)]


def two_shards() -> dict[str, list[bytes]]:
    """Return two shards. The tensor `weight` has three parts, of which one is in the second shard. Every
    other tensor has one part.
    """
    whole = [(name, (0,) * one.dim(), tuple(one.shape), one) for name, one in STATE.items()][1:]
    first: Wanted = [
        ("model.weight", (0, 0), (4, 3), WEIGHT[:2, :2]),
        ("model.weight", (0, 2), (4, 3), WEIGHT[:2, 2:]),
        *whole[:2],
    ]
    second: Wanted = [("model.weight", (2, 0), (4, 3), WEIGHT[2:]), *whole[2:]]
    texts = {name: values.dumps(one) for name, one in VALUES.items()}
    return {"0": cut(in_bytes(first, texts)), "1": cut(in_bytes(second, {}))}


def read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    meta = header.pop("__metadata__")
    names = {safe: name for name, safe in SAFE_NAMES.items()}
    found, ends = {}, []
    for name, one in header.items():
        start, end = one["data_offsets"]
        ends.append((start, end))
        raw = bytearray(data[8 + length + start : 8 + length + end])
        dtype = getattr(torch, names[one["dtype"]])
        flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
        found[name] = flat.reshape(one["shape"])
    assert length % 8 == 0
    ends.sort()
    assert [start for start, _ in ends] == [0, *(end for _, end in ends[:-1])], "there are no holes"
    assert 8 + length + ends[-1][1] == len(data)
    return found, meta


def same(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == STATE.keys() and all(
        one.dtype == STATE[name].dtype and torch.equal(one, STATE[name]) for name, one in found.items()
    )


def test_a_safetensors_file_has_complete_tensors_and_the_values_as_json(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.save((2, 7), two_shards())
    to = tmp_path / "state.safetensors"
    done = bucket.run("export", "job", "--to", str(to))
    assert done.exit_code == 0, done.output
    assert done.output == f"job 2/7: 5 tensors in {to}\n"
    found, meta = read_safetensors(to)
    assert same(found)
    assert meta["format"] == "pt" and json.loads(meta["generation"])["step"] == 7
    texts = json.loads(meta["values"])
    assert {name: values.loads(json.dumps(one)) for name, one in texts.items()} == VALUES
    assert [path.name for path in tmp_path.iterdir()] == [to.name]
    again = bucket.run("export", "job", "--to", str(to))
    assert again.exit_code == 1 and "already exists" in again.output


def test_a_folder_of_torch_distributed_checkpoint_is_loaded_by_torch(bucket: Bucket, tmp_path: Path) -> None:
    bucket.save((2, 7), two_shards())
    to = tmp_path / "state"
    done = bucket.run("export", "job", "--to", str(to))
    assert done.exit_code == 0, done.output
    state: dict[str, Any] = {
        "model": {name.removeprefix("model."): torch.zeros_like(one) for name, one in STATE.items()},
        "step": 0,
        "rank.0": None,
    }
    state_dict_loader.load(state, storage_reader=FileSystemReader(to), no_dist=True)
    assert same({f"model.{name}": one for name, one in state["model"].items()})
    assert {name: state[name] for name in VALUES} == VALUES
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_the_format_option_overrides_the_suffix(bucket: Bucket, tmp_path: Path) -> None:
    bucket.save((2, 7), two_shards())
    to = tmp_path / "state"
    assert bucket.run("export", "job", "--to", str(to), "--format", "safetensors").exit_code == 0
    assert same(read_safetensors(to)[0])


def test_a_generation_that_ends_in_a_journal_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    pieces = two_shards()
    base = bucket.save((1, 7), pieces)
    bucket.save(
        (1, 8),
        {"0": [noise(1)], "1": [noise(2)]},
        parent=(1, 7),
        extends={name: one.id for name, one in base.items()},
    )
    to = tmp_path / "state.safetensors"
    failed = bucket.run("export", "job", "--to", str(to))
    assert failed.exit_code == 1 and "1/8 ends in a journal" in failed.output
    assert "--generation 1/7" in failed.output and not list(tmp_path.iterdir())
    assert bucket.run("export", "job", "--to", str(to), "--generation", "1/7").exit_code == 0
    assert same(read_safetensors(to)[0])


def test_an_invalid_shard_leaves_no_files(bucket: Bucket, tmp_path: Path) -> None:
    bucket.save((1, 1), {"0": [noise(1)]})
    failed = bucket.run("export", "job", "--to", str(tmp_path / "state.safetensors"))
    assert failed.exit_code == 1 and "1/1: no shard" in failed.output
    assert not list(tmp_path.iterdir())


def test_an_incomplete_tensor_is_refused() -> None:
    half: Wanted = [("w", (0, 0), (4, 3), WEIGHT[:2])]
    for wanted, words in (
        (half, "w is incomplete"),
        ([*half, ("w", (3, 0), (4, 3), WEIGHT[2:])], "lies outside it"),
        ([*half, ("w", (2, 0), (4, 3), WEIGHT[2:].double())], "several shapes or types"),
    ):
        with pytest.raises(ShardError, match=words):
            Whole([shard.read(memoryview(bytearray(in_bytes(wanted, {}))))])


def test_a_dtype_unsupported_by_safetensors_is_refused_with_advice(bucket: Bucket, tmp_path: Path) -> None:
    odd: Wanted = [("w", (0,), (2,), torch.tensor([1 + 1j, 2]))]
    bucket.save((1, 1), {"0": cut(in_bytes(odd, {}))})
    failed = bucket.run("export", "job", "--to", str(tmp_path / "state.safetensors"))
    assert failed.exit_code == 1 and "--format dcp" in failed.output and not list(tmp_path.iterdir())
    assert bucket.run("export", "job", "--to", str(tmp_path / "state")).exit_code == 0


def test_without_torch_the_error_gives_advice(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    failed = bucket.run("export", "job", "--to", str(tmp_path / "state"))
    assert failed.exit_code == 1 and "pip install torch" in failed.output
