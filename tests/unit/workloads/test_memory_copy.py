"""Tests that a copy with several threads gives the bytes that torch's own copy gives."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_workloads.runtime.tiers import memory_copy
from convoy_workloads.runtime.tiers.memory_copy import MemoryCopy


def transposed() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4).t()


SOURCES = {
    "contiguous": torch.arange(12.0).view(3, 4),
    "transposed": transposed(),
    "every other column": torch.arange(24.0).view(3, 8)[:, ::2],
    "one value for all": torch.tensor(3.0).expand(4, 5),
    "no value": torch.empty(0, 3),
    "a number": torch.tensor(7.0),
    "negated without a copy": torch.complex(torch.ones(3), torch.ones(3)).conj().imag,
    "conjugate without a copy": torch.complex(torch.ones(3), torch.ones(3)).conj(),
    "a parameter": torch.nn.Parameter(torch.arange(5.0)).detach(),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_kind_of_source_is_copied(name: str) -> None:
    source = SOURCES[name]
    target = torch.zeros(source.shape, dtype=source.dtype)
    copy = MemoryCopy()
    copy.add(target, source)
    copy.run()
    assert torch.equal(target, source.clone())


def test_values_of_another_type_are_converted() -> None:
    target, source = torch.zeros(5, dtype=torch.bfloat16), torch.linspace(0, 1, 5)
    copy = MemoryCopy()
    copy.add(target, source)
    copy.run()
    assert torch.equal(target, source.to(torch.bfloat16))


def test_a_target_with_other_strides_is_filled_in_place() -> None:
    whole = torch.zeros(4, 6)
    copy = MemoryCopy()
    copy.add(whole[:, 1:3], torch.ones(4, 2))
    copy.run()
    assert whole.sum() == 8 and whole[:, 1:3].eq(1).all()


def test_a_tensor_that_is_in_place_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> None:
        raise AssertionError("a copy")

    monkeypatch.setattr(memory_copy.ctypes, "memmove", refused)
    own = torch.ones(3)
    copy = MemoryCopy()
    copy.add(own, own.view(3))
    copy.run()


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), max_size=12),
    piece=st.integers(1, 4096),
    threads=st.integers(1, 8),
)
def test_pieces_and_threads_change_no_byte(sizes: list[int], piece: int, threads: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_copy, "PIECE_BYTES", piece)
        patch.setattr(memory_copy.torch, "get_num_threads", lambda: threads)
        sources = [torch.randint(0, 256, (size,), dtype=torch.uint8) for size in sizes]
        targets = [torch.zeros(size + 2, dtype=torch.uint8) for size in sizes]
        copy = MemoryCopy()
        for target, source in zip(targets, sources, strict=True):
            copy.add(target[1:-1], source)
        copy.run()
    assert all(torch.equal(one[1:-1], other) for one, other in zip(targets, sources, strict=True))
    assert all(one[0] == one[-1] == 0 for one in targets)


def test_several_threads_copy_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call waits until two threads are in it, so the test hangs, and then fails, with one thread."""
    both, real = threading.Barrier(2, timeout=30), memory_copy.ctypes.memmove

    def meet(*piece: int) -> None:
        both.wait()
        real(*piece)

    monkeypatch.setattr(memory_copy, "PIECE_BYTES", 8)
    monkeypatch.setattr(memory_copy.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(memory_copy.ctypes, "memmove", meet)
    source, target = torch.arange(2.0, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    copy = MemoryCopy()
    copy.add(target, source)
    copy.run()
    assert torch.equal(target, source)
    assert not [one for one in threading.enumerate() if one.name == "convoy-copy"]


def test_without_a_further_thread_all_bytes_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    real = threading.Thread.start

    def start(one: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        real(one)
        started.append(one)

    monkeypatch.setattr(memory_copy, "PIECE_BYTES", 8)
    monkeypatch.setattr(memory_copy.torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(memory_copy.threading.Thread, "start", start)
    target, source = torch.zeros(8, dtype=torch.float64), torch.arange(8.0, dtype=torch.float64)
    copy = MemoryCopy()
    copy.add(target, source)
    copy.run()
    assert torch.equal(target, source) and len(started) == 1 and not started[0].is_alive()


def test_an_interrupted_copy_writes_nothing_after_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other thread is inside its piece when the caller is interrupted. It ends only if it is joined."""
    caller, inside, joined = threading.current_thread(), threading.Event(), threading.Event()
    calls: list[int] = []
    real = threading.Thread.join

    def interrupted(*_: int) -> None:
        if threading.current_thread() is caller:
            assert inside.wait(30)
            raise KeyboardInterrupt
        calls.append(1)
        inside.set()
        assert joined.wait(30)

    def join(one: threading.Thread) -> None:
        joined.set()
        real(one)

    monkeypatch.setattr(memory_copy, "PIECE_BYTES", 8)
    monkeypatch.setattr(memory_copy.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(memory_copy.ctypes, "memmove", interrupted)
    monkeypatch.setattr(memory_copy.threading.Thread, "join", join)
    copy = MemoryCopy()
    copy.add(torch.zeros(9, dtype=torch.float64), torch.ones(9, dtype=torch.float64))
    try:
        with pytest.raises(KeyboardInterrupt):
            copy.run()
        assert calls == [1] and not [one for one in threading.enumerate() if one.name == "convoy-copy"]
    finally:
        joined.set()


def test_an_error_of_another_thread_is_an_error_of_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, failed = threading.current_thread(), threading.Event()

    def fail_elsewhere(*_: int) -> None:
        if threading.current_thread() is not caller:
            failed.set()
            raise MemoryError
        assert failed.wait(30)

    monkeypatch.setattr(memory_copy, "PIECE_BYTES", 8)
    monkeypatch.setattr(memory_copy.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(memory_copy.ctypes, "memmove", fail_elsewhere)
    copy = MemoryCopy()
    copy.add(torch.zeros(9, dtype=torch.float64), torch.ones(9, dtype=torch.float64))
    with pytest.raises(MemoryError):
        copy.run()


def test_another_shape_does_not_write_beyond_the_target() -> None:
    whole = torch.zeros(8)
    copy = MemoryCopy()
    copy.add(whole[:2], torch.ones(8))
    with pytest.raises(RuntimeError):
        copy.run()
    assert not whole.any()


def test_a_source_without_memory_is_copied_by_torch() -> None:
    target = torch.ones(3)
    copy = MemoryCopy()
    copy.add(target, torch._efficientzerotensor(3))
    copy.run()
    assert not target.any()


@pytest.mark.parametrize("name", SOURCES)
def test_bytes_are_copied_to_an_address_or_left_to_torch(name: str) -> None:
    source = SOURCES[name]
    target = torch.zeros(source.shape, dtype=source.dtype)
    copy = MemoryCopy()
    added = copy.add_bytes(target.data_ptr(), source)
    copy.run()
    assert added == (name in {"contiguous", "a number", "a parameter"})
    assert torch.equal(target, source.clone() if added else torch.zeros_like(target))
