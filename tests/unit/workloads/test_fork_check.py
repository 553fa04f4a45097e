"""Tests of the decision whether a rank must start cold instead of as a fork of the zygote, based on facts
about the rank and the zygote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from convoy_workloads.launcher import fork_check, thread_pools
from convoy_workloads.launcher.fork_check import ZygoteState, cold_start_reason
from convoy_workloads.launcher.zygote_manager import WARM_VARIABLE, ZygoteManager

BASE = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, ""),
        ({"OMP_NUM_THREADS": "8", "RANK": "3", "MASTER_ADDR": "a", "HOME": "/h", "MY_OWN": "1"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "3", "NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "lo"}, ""),
        ({"TORCHELASTIC_RUN_ID": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, ""),
        ({"OMP_NUM_THREADS": "many"}, "OMP_NUM_THREADS=many is not a number"),
        ({"PYTHONDEVMODE": ""}, "PYTHONDEVMODE is read at the start"),
        ({"PYTHONDEVMODE": "1"}, "PYTHONDEVMODE is set"),
        *[
            ({name: "x"}, f"{name} is read at the start")
            for name in (
                "PYTHONPATH", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX",
                "GLIBC_TUNABLES",
                "LC_ALL", "LANG", "TZ", "OMP_PROC_BIND", "KMP_AFFINITY", "MKL_DYNAMIC", "GOMP_CPU_AFFINITY",
                "TORCH_LOGS", "TORCHINDUCTOR_CACHE_DIR", "TORCH_DISTRIBUTED_DEBUG",
                "PYTORCH_NVML_BASED_CUDA_CHECK",
            )
        ],
    ],
)  # fmt: skip
def test_changed_variables_that_an_interpreter_reads_at_startup_force_a_cold_start(
    variables: dict[str, str], why: str
) -> None:
    assert cold_start_reason({**BASE, **variables}, (), ZygoteState(BASE, {})).startswith(why)
    if not why:
        assert cold_start_reason({**BASE, **variables}, (), ZygoteState(BASE, {})) == ""


def test_a_variable_missing_in_the_rank_forces_a_cold_start() -> None:
    assert cold_start_reason({"PATH": "/bin"}, (), ZygoteState(BASE, {})).startswith("LANG is read")


def test_an_unfit_zygote_is_not_forked() -> None:
    assert cold_start_reason(BASE, (), ZygoteState(BASE, {}, "it runs 2 threads")) == "it runs 2 threads"


def test_a_module_hidden_by_the_programs_folder_forces_a_cold_start(tmp_path: Path) -> None:
    for name in ("json.py", "numpy", "torch/__init__.py", "own.py", "csv.txt", "queue.pyc", "select.abi3.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    imported = dict.fromkeys(
        ("json", "numpy", "torch", "csv", "queue", "select", "logging"), "/usr/lib/python3"
    )
    zygote = ZygoteState({}, imported)
    assert fork_check.shadowed_modules(str(tmp_path), zygote) == {"json", "torch", "queue", "select"}
    assert cold_start_reason({}, {"json", "torch"}, zygote).startswith(
        "json beside the program shadows a module"
    )
    assert (
        fork_check.shadowed_modules(str(tmp_path), ZygoteState({}, dict.fromkeys(imported, str(tmp_path))))
        == set()
    )
    assert fork_check.shadowed_modules(str(tmp_path / "nowhere"), zygote) == set()


def test_modules_know_the_folder_that_they_were_found_in() -> None:
    found = fork_check.module_folders(
        {"json": json, "json.decoder": json.decoder, "sys": sys, "x": None}.items()
    )
    assert found == {"json": str(Path(json.__file__).resolve().parents[1])}


@pytest.mark.parametrize(
    ("environment", "mkl", "threads"),
    [
        ({}, False, 1), ({"OMP_NUM_THREADS": "6"}, False, 6), ({"OMP_NUM_THREADS": "6"}, True, 4),
        ({"OMP_NUM_THREADS": "3"}, True, 3), ({"OMP_NUM_THREADS": "6", "MKL_NUM_THREADS": "2"}, True, 2),
        ({"OMP_NUM_THREADS": "6", "MKL_DYNAMIC": "FALSE"}, True, 6), ({"OMP_NUM_THREADS": "0"}, True, 1),
        ({"OMP_NUM_THREADS": "6", "MKL_NUM_THREADS": "2"}, False, 6),
    ],
)  # fmt: skip
def test_torch_has_as_many_threads_as_in_a_fresh_process(
    environment: dict[str, str], mkl: bool, threads: int
) -> None:
    """The machine has four cores in this test. MKL uses at most one thread per core."""
    assert thread_pools.torch_threads(environment, mkl, lambda: 4) == threads


async def test_a_job_without_warm_ranks_has_no_zygote() -> None:
    zygotes = ZygoteManager({"PATH": "/usr/bin:/bin", WARM_VARIABLE: "false"}, lambda *_: None)
    zygotes.prewarm("python3")
    assert zygotes.for_interpreter(sys.executable) is None
    assert not zygotes.alive
