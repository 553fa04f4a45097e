"""Tests of buffers that are pinned for a GPU, with a fake of the CUDA runtime."""

from __future__ import annotations

import contextlib
import mmap
import os
from types import SimpleNamespace

import pytest
import torch

from convoy_workloads.runtime.tiers import pinning
from convoy_workloads.runtime.tiers.memory_client import MappedFile

SIZE = mmap.PAGESIZE


class FakeRuntime:
    """The two calls of the CUDA runtime that pin memory."""

    def __init__(self, refusal: int = 0) -> None:
        self.pinned: dict[int, int] = {}
        self._refusal = refusal

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        if not self._refusal:
            self.pinned[address] = size
        return self._refusal

    def cudaHostUnregister(self, address: int) -> int:
        del self.pinned[address]
        return 0


def use(monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime) -> list[int]:
    """Let torch use the fake runtime. Return the list to which each chosen device is added."""
    chosen: list[int] = []

    @contextlib.contextmanager
    def device(number: int) -> object:  # type: ignore[misc]
        chosen.append(number)
        yield

    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "device", device)
    return chosen


def mapped() -> MappedFile:
    fd = os.memfd_create("buffer")
    os.ftruncate(fd, SIZE)
    return MappedFile(fd, write=True)


def test_a_buffer_is_pinned_by_the_ranks_gpu_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime()
    chosen = use(monkeypatch, runtime)
    file = mapped()
    file.pin(3)
    assert (list(runtime.pinned.values()), chosen) == ([SIZE], [3])
    file.close()
    assert not runtime.pinned
    assert file.map.closed


def test_a_buffer_that_the_driver_cannot_pin_stays_usable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeRuntime(refusal=2))
    file = mapped()
    file.pin(0)
    file.bytes[0] = 7
    file.close()
    assert f"cannot pin {SIZE} bytes: CUDA error 2" in "".join(capsys.readouterr())


def test_only_a_program_that_uses_a_gpu_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pinning.current_gpu() is None
    cuda = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, current_device=lambda: 5)
    monkeypatch.setattr(torch, "cuda", cuda)
    assert pinning.current_gpu() == 5
