"""Tests of the kernels' house: instruction sets, build, library, dispatch and threads."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from convoy_workloads.kernels import build, dispatch, instruction_sets, library, threads
from convoy_workloads.kernels.ctypes_kernel import check_array, kernel_function
from convoy_workloads.kernels.errors import InvalidInput, KernelError

needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
TOY = """
#include "toy.h"
extern "C" __attribute__((visibility("default")))
void convoy_toy(const Toy* toy, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) toy->to[i] = SCALE * toy->from[i];
}
"""
TOY_HEADER = """
#include <cstdint>
#define SCALE 2
struct Toy { const int64_t* from; int64_t* to; };
"""
Double = Callable[[np.ndarray], np.ndarray]


class Toy(ctypes.Structure):
    _fields_ = (("source", ctypes.c_void_p), ("target", ctypes.c_void_p))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "toy_avx2.cpp").write_text(TOY)
    (folder / "toy.h").write_text(TOY_HEADER)
    return folder


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.warn_once.cache_clear()
    return tmp_path / "cache" / "convoy" / "kernels"


@pytest.fixture(autouse=True)
def fresh_selections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_selections", {})


def toy_kernel(
    bind: Callable[[ctypes.CDLL], Double], *, difference: str = "", sets: tuple[str, ...] = ("avx2",)
) -> dispatch.Kernel[Double]:
    return dispatch.Kernel("toy", sets, bind, lambda _: difference, lambda array: 2 * array)


def bind_toy(loaded: ctypes.CDLL) -> Double:
    function = kernel_function(loaded, "convoy_toy")

    def double(array: np.ndarray) -> np.ndarray:
        found = np.empty_like(array)
        function(ctypes.byref(Toy(array.ctypes.data, found.ctypes.data)), 0, array.size)
        return found

    return double


def test_the_flags_of_all_processors_count() -> None:
    text = "processor: 0\nflags\t\t: fpu avx2 fma\n\nprocessor: 1\nflags\t\t: fpu avx2\nvmx flags : x\n"
    assert instruction_sets.parse_cpu_flags(text) == {"fpu", "avx2"}
    assert instruction_sets.parse_cpu_flags("Features : asimd") == frozenset()
    assert instruction_sets.missing_flags("avx2", {"avx2", "fma"}) == ("f16c",)


def test_compiler_flags_follow_from_cpu_flags() -> None:
    flags = instruction_sets.INSTRUCTION_SETS["amx"].compiler_flags
    assert {"-mavx512f", "-mavx512bf16", "-mavx512vbmi", "-mamx-tile", "-mfma"} <= set(flags)


def test_units_are_found_by_file_name(sources: Path) -> None:
    (sources / "thread_pool.cpp").touch()
    (sources / "two_words_avx512vnni.cpp").touch()
    found = build.units(sources)
    assert [(one.kernel, one.instruction_set and one.instruction_set.name) for one in found.values()] == [
        ("thread_pool", None),
        ("toy", "avx2"),
        ("two_words", "avx512vnni"),
    ]


def test_the_digest_covers_included_headers_and_flags(sources: Path) -> None:
    unit = build.units(sources)["toy_avx2"]
    first = build.digest(unit)
    (sources / "other.h").write_text("int other;")
    assert build.digest(unit) == first != build.digest(unit, "address")
    (sources / "toy.h").write_text(TOY_HEADER + '#include "other.h"')
    second = build.digest(unit)
    (sources / "other.h").write_text("long other;")
    assert len({first, second, build.digest(unit)}) == 3


@needs_compiler
def test_a_library_is_built_once_into_a_private_cache(
    sources: Path, user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = build.units(sources)
    monkeypatch.setattr(build, "units", lambda: units)
    found = library.find("toy_avx2")
    assert found.is_relative_to(user_cache)
    assert user_cache.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(build, "compile_unit", lambda *_: pytest.fail("compiled again"))
    assert library.find("toy_avx2") == found
    user_cache.chmod(0o777)
    with pytest.raises(KernelError, match="others may write"):
        library.find("toy_avx2")


@needs_compiler
def test_a_packaged_library_needs_no_cache_but_a_fitting_digest(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = tmp_path / "lib"
    build.build(packaged, sources=sources)
    units = build.units(sources)
    monkeypatch.setattr(build, "units", lambda: units)
    monkeypatch.setattr(build, "compiler", lambda: None)
    assert library.find("toy_avx2", packaged=packaged) == packaged / "toy_avx2.so"
    (sources / "toy.h").write_text(TOY_HEADER.replace("2", "3"))
    with pytest.raises(KernelError, match="install g"):
        library.find("toy_avx2", packaged=packaged, cache_folder=tmp_path / "cache")


@needs_compiler
def test_an_error_of_the_compiler_names_the_unit_and_leaves_nothing(sources: Path, tmp_path: Path) -> None:
    (sources / "toy_avx2.cpp").write_text("int unused(int x) { return 0; }")
    with pytest.raises(KernelError, match=r"(?s)toy_avx2.cpp: .*unused parameter"):
        build.build(tmp_path / "lib", sources=sources)
    assert list((tmp_path / "lib").iterdir()) == []


@needs_compiler
def test_a_compiler_that_hangs_is_stopped(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "compiler"
    hanging.write_text("#!/bin/sh\nexec sleep 100\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: str(hanging))
    with pytest.raises(KernelError, match="did not end"):
        build.compile_unit(build.units(sources)["toy_avx2"], tmp_path / "lib", deadline=0.05)


@needs_compiler
def test_a_kernel_of_c_is_chosen_and_runs(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build.build(tmp_path / "lib", sources=sources)
    monkeypatch.setattr(library, "load", lambda name: ctypes.CDLL(str(built[name])))
    monkeypatch.setattr(instruction_sets, "missing_flags", lambda *_: ())
    chosen = dispatch.select(toy_kernel(bind_toy))
    assert chosen.instruction_set == "avx2"
    assert chosen.function(np.arange(5)).tolist() == [0, 2, 4, 6, 8]
    assert dispatch.select(toy_kernel(bind_toy)) is chosen
    assert dispatch.selections() == (chosen,)


def loads_anything(monkeypatch: pytest.MonkeyPatch, lacking: str = "") -> None:
    library.warn_once.cache_clear()
    monkeypatch.setattr(library, "load", lambda _: None)
    monkeypatch.setattr(
        instruction_sets, "missing_flags", lambda name, _: ("flag",) if name == lacking else ()
    )


def test_a_kernel_that_differs_is_disabled_with_a_warning_that_names_the_shape(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loads_anything(monkeypatch)
    kernel = toy_kernel(lambda _: np.negative, difference="n=3: 1 instead of 2")
    chosen = dispatch.select(kernel)
    assert (chosen.instruction_set, chosen.function) == (dispatch.TWIN, kernel.twin)
    assert chosen.rejected["avx2"].reason == "differs"
    assert "toy does not use avx2: it differs from the numpy twin for n=3" in capsys.readouterr().err
    with pytest.raises(KernelError, match="cannot use avx2"):
        dispatch.select(kernel, "avx2")


def test_the_first_usable_instruction_set_is_chosen_and_amx_only_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads_anything(monkeypatch, lacking="avx512")
    monkeypatch.setattr(instruction_sets, "request_tiles", lambda: True)
    kernel = toy_kernel(lambda _: np.positive, sets=("amx", "avx512", "avx2"))
    chosen = dispatch.select(kernel)
    assert chosen.instruction_set == "avx2"
    assert {name: one.reason for name, one in chosen.rejected.items()} == {"amx": "off", "avx512": "cpu"}
    assert dispatch.select(kernel, "amx").instruction_set == "amx"
    assert dispatch.select(kernel, dispatch.TWIN).function is kernel.twin
    with pytest.raises(InvalidInput, match="choose one of: auto, amx"):
        dispatch.select(kernel, "neon")
    with pytest.raises(KernelError, match="lacks flag"):
        dispatch.select(kernel, "avx512")


def test_without_compiler_and_libraries_the_twin_runs_with_one_warning(
    user_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    units = {"toy_avx2": build.Unit("toy_avx2", Path(__file__), "toy", None)}
    monkeypatch.setattr(build, "units", lambda: units)
    monkeypatch.setattr(build, "compiler", lambda: None)
    monkeypatch.setattr(instruction_sets, "missing_flags", lambda *_: ())
    for name in ("toy", "toy"):
        monkeypatch.setattr(dispatch, "_selections", {})
        chosen = dispatch.select(dispatch.Kernel(name, ("avx2",), bind_toy, lambda _: "", abs))
    assert chosen.instruction_set == dispatch.TWIN
    assert chosen.rejected["avx2"].reason == "library"
    error = capsys.readouterr().err
    assert error.count("warning") == 1
    assert "install g++" in error


@needs_compiler
def test_without_a_place_for_libraries_the_twin_runs_with_a_warning_that_says_what_to_do(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    units = build.units(sources)
    monkeypatch.setattr(build, "units", lambda: units)
    monkeypatch.setattr(instruction_sets, "missing_flags", lambda *_: ())
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    library.warn_once.cache_clear()
    assert dispatch.select(toy_kernel(bind_toy)).instruction_set == dispatch.TWIN
    assert "set XDG_CACHE_HOME to a folder" in capsys.readouterr().err
    (tmp_path / "file").touch()
    with pytest.raises(KernelError, match=r"toy_avx2\.cpp: cannot write to .*file/lib"):
        build.compile_unit(units["toy_avx2"], tmp_path / "file" / "lib")


def test_a_compiler_that_is_named_but_missing_is_not_called_no_compiler(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "ccache g++")
    monkeypatch.setattr(build, "compiler", build.compiler.__wrapped__)
    with pytest.raises(KernelError, match=r"CXX=ccache g\+\+: there is no such program"):
        build.compile_unit(build.units(sources)["toy_avx2"], tmp_path / "lib")


def test_on_another_cpu_the_twin_runs_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loads_anything(monkeypatch, lacking="avx2")
    assert dispatch.select(toy_kernel(bind_toy)).instruction_set == dispatch.TWIN
    assert "run as slow numpy code: this CPU lacks flag" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("texts", "cores"),
    [
        ({"cpu.max": "250000 100000\n"}, 2.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "junk"}, None),
        ({}, None),
    ],
)
def test_quotas_of_both_versions_of_cgroups(texts: dict[str, str], cores: float | None) -> None:
    assert threads.quota(texts) == cores


@pytest.mark.parametrize(
    ("affinity", "cores", "share", "expected"),
    [
        (8, None, "", 8),
        (8, 2.5, "", 2),
        (2, 16.0, "", 2),
        (4, 0.5, "", 1),
        (999, None, "", threads.MAX_THREADS),
        (8, 6.0, "3", 3),
        (8, 2.0, "3", 2),
        (8, None, "0", 1),
        (8, None, "4,2", 8),
    ],
)
def test_threads_are_whole_cores(affinity: int, cores: float | None, share: str, expected: int) -> None:
    assert threads.thread_count(affinity, cores, share) == expected


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture
def pool() -> Iterator[threads.ThreadPool]:
    found = threads.ThreadPool(3)
    yield found
    found.close()


@needs_compiler
@pytest.mark.parametrize("items", [0, 1, 2, 7, 100])
def test_the_pool_computes_each_item_once(pool: threads.ThreadPool, items: int) -> None:
    assert pool.threads == 3
    seen: list[tuple[int, int]] = []
    pool.run(CALLBACK(lambda _, begin, end: seen.append((begin, end))), Toy(), items, multiple=4)
    assert all(begin % 4 == 0 for begin, _ in seen)
    assert sorted(item for begin, end in seen for item in range(begin, end)) == list(range(items))


@needs_compiler
def test_the_pool_uses_its_threads_at_the_same_time(pool: threads.ThreadPool) -> None:
    together = threading.Barrier(3, timeout=30)
    pool.run(CALLBACK(lambda *_: together.wait() and None), Toy(), 3)


@needs_compiler
def test_callers_of_a_pool_run_one_after_another(pool: threads.ThreadPool) -> None:
    counts = np.zeros((4, 50), dtype=np.int64)

    def call(row: int) -> None:
        def count(_: int, begin: int, end: int) -> None:
            counts[row, begin:end] += 1

        for _ in range(20):
            pool.run(CALLBACK(count), Toy(), 50)

    callers = [threading.Thread(target=call, args=(row,)) for row in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert (counts == 20).all()


@needs_compiler
def test_a_forked_child_starts_its_own_threads() -> None:
    code = (
        "import os, ctypes\n"
        "from convoy_workloads.kernels import threads\n"
        "function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)\n"
        "done = []\n"
        "run = lambda: threads.shared_pool(2).run(\n"
        "    function(lambda _, begin, end: done.append(end - begin)), ctypes.c_int(), 8)\n"
        "run()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    run()\n"
        "    os._exit(0 if sum(done) == 16 else 1)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(build.__file__).parents[2])}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "0\n"


def test_a_pool_without_its_library_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise KernelError("no compiler")

    monkeypatch.setattr(library, "load", missing)
    found = threads.ThreadPool(4)
    seen = []
    found.run(lambda _, begin, end: seen.append((begin, end)), Toy(), 9)
    assert (found.threads, seen) == (1, [(0, 9)])
    with pytest.raises(InvalidInput, match="threads: 0"):
        threads.ThreadPool(0)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([1.0], "x: list is no numpy array"),
        (np.zeros((2, 3)), "x: dtype <f8 instead of <f4"),
        (np.zeros((2, 3), ">f4"), "x: dtype >f4 instead of <f4"),
        (np.zeros((2, 4), "f4"), r"x: shape 2x4 instead of \?x3"),
        (np.zeros(3, "f4"), r"x: shape 3 instead of \?x3"),
        (np.zeros((3, 2), "f4").T, "x: not C-contiguous"),
        (np.zeros(25, "u1")[1:].view("f4").reshape(2, 3), "x: its address is no multiple of 4"),
    ],
)
def test_arrays_that_c_code_cannot_read_are_refused(array: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_array("x", array, np.float32, (None, 3), alignment=4)


def test_a_read_only_array_is_refused_only_as_an_output() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    assert check_array("x", array, np.float64, (3,)) is array
    with pytest.raises(InvalidInput, match="x: read-only"):
        check_array("x", array, np.float64, (3,), writable=True)
