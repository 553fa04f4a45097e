"""Tests of the runner, of the pure parts of probes, and of values that probes read from the kernel."""

from __future__ import annotations

import asyncio
import importlib
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from convoy_agents.guard.sweep import catalogue, memory, provenance
from convoy_agents.guard.sweep.finding import Finding, Outcome
from convoy_agents.guard.sweep.probe import (
    MAX_SAMPLES,
    AcceleratorUse,
    NotAvailable,
    Probe,
    Tier,
    sample_numbers,
)
from convoy_agents.guard.sweep.probes import cuda, disk, fingerprint, inventory, memory_copy, nvidia
from convoy_agents.guard.sweep.process import ChildExit, Children
from convoy_agents.guard.sweep.runner import Launch, Result, Runner


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_sampling_ends_by_time_or_count() -> None:
    assert list(sample_numbers(0)) == [0, 1, 2]
    assert list(sample_numbers(0, minimum=5)) == [0, 1, 2, 3, 4]
    assert sum(1 for _ in sample_numbers(3600)) == MAX_SAMPLES


@pytest.mark.parametrize("name", list(catalogue.ALL))
def test_every_probe_can_be_found(name: str) -> None:
    probe = catalogue.ALL[name]
    assert (probe.name, probe.tier is Tier.L2) == (name, not probe.run)
    if probe.run:
        module, function = probe.run.split(":")
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize(
    ("tiers", "names", "accelerators", "found"),
    [
        (["L0"], [], 0, ["inventory"]),
        (["L0"], [], 8, ["inventory"]),
        (["L2", "L0"], [], 0, ["inventory", "pair-latency", "pair-bandwidth"]),
        (["L1"], ["jitter", "hbm"], 0, ["jitter", "hbm"]),
        (["L1"], ["hbm", "jitter", "inventory"], 8, ["jitter", "hbm"]),
        ([], ["jitter"], 0, []),
    ],
)
def test_probes_are_selected_by_tier_and_name(
    tiers: list[str], names: list[str], accelerators: int, found: list[str]
) -> None:
    assert [one.name for one in catalogue.select(tiers, names, accelerators)] == found


def test_accelerator_probes_are_skipped_without_accelerators() -> None:
    without = {one.name for one in catalogue.select(["L1"], [], 0)}
    with_one = {one.name for one in catalogue.select(["L1"], [], 1)}
    assert (
        with_one - without
        == {one.name for one in catalogue.ALL.values() if one.accelerator_use is not AcceleratorUse.NONE}
        > {"hbm"}
    )


class FakeChildren(Children):
    """Fake children. A child exits only when `together` children are running. If the runner started fewer
    at once, the test would hang.
    """

    def __init__(self, together: int) -> None:
        super().__init__()
        self._room = asyncio.Barrier(together)
        self.begun: list[list[str]] = []

    async def run(self, argv: Sequence[str], env: Mapping[str, str], seconds: float) -> ChildExit:
        self.begun.append(list(argv[-4:-2]))
        await self._room.wait()
        return ChildExit(0, b'{"outcome": "NotAvailable", "message": "m"}', "")


@pytest.mark.parametrize(
    ("name", "together", "found"),
    [("hbm", 3, [0, 1, 2]), ("pcie-h2d", 1, [0, 1, 2]), ("nccl", 1, [None]), ("jitter", 1, [None])],
)
async def test_accelerators_are_probed_in_parallel_or_in_turn(
    tmp_path: Path, name: str, together: int, found: list[int | None]
) -> None:
    write(tmp_path, nvidia0="", nvidia1="", nvidia2="", nvidiactl="")
    children, results = FakeChildren(together), list[Result]()

    async def paired(probe: Probe, seconds: float) -> Finding:
        raise AssertionError(probe)

    runner = Runner(Launch(tmp_path), children, tmp_path)
    async with asyncio.timeout(10):
        await runner.run([catalogue.ALL[name]], 60, paired, results.append)
    assert [one.accelerator for one in results] == found
    assert {one.finding.outcome for one in results} == {Outcome.NOT_AVAILABLE}
    assert children.begun == [[name, str(one or 0)] for one in found]


def test_a_configured_interpreter_runs_accelerator_probes_only() -> None:
    launch = Launch(Path("/d"), "/opt/torch/bin/python")
    assert launch.argv(catalogue.ALL["hbm"], 3)[0] == "/opt/torch/bin/python"
    assert launch.argv(catalogue.ALL["hbm"], 3)[-4:] == ["hbm", "3", "10", "/d"]
    assert launch.argv(catalogue.ALL["jitter"], None)[0] != "/opt/torch/bin/python"


def test_the_training_fingerprint_is_deterministic_and_detects_a_bit_flip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = fingerprint.train(3)
    assert fingerprint.train(3) == first
    assert fingerprint.train(4) != first
    tanh, calls = np.tanh, []

    def wrong_once(values: fingerprint.Array) -> fingerprint.Array:
        out = tanh(values)
        calls.append(0)
        if len(calls) == 2:
            out.view(np.uint32)[7, 7] ^= 1  # flip the lowest bit of one intermediate value
        return out

    monkeypatch.setattr(np, "tanh", wrong_once)
    assert fingerprint.train(3) != first


def test_the_fingerprint_training_changes_until_its_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    # The values must stay finite and must keep changing, because otherwise they would hide computation
    # errors.
    sizes: list[float] = []
    tanh = np.tanh

    def seen(values: fingerprint.Array) -> fingerprint.Array:
        sizes.append(float(np.abs(values).mean()))
        out: fingerprint.Array = tanh(values)
        return out

    monkeypatch.setattr(np, "tanh", seen)
    fingerprint.train(fingerprint.STEPS)
    assert np.isfinite(sizes).all()
    assert len(set(sizes)) == fingerprint.STEPS


@pytest.mark.parametrize(("cache", "buffer"), [(0, 32), (40, 80), (600, 960)])
def test_copied_buffers_are_larger_than_the_caches(
    cache: int, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def ones(size: int, _: object) -> list[int]:
        sizes.append(size >> 20)
        return []

    monkeypatch.setattr(memory_copy, "last_level_cache", lambda: cache << 20)
    monkeypatch.setattr(memory_copy, "np", SimpleNamespace(ones=ones, zeros=ones, copyto=print, uint8=None))
    monkeypatch.setattr(memory_copy.memory, "available", lambda: None)
    memory_copy.run(0, 0.0)
    assert sizes == [buffer, buffer]


def test_memory_copy_is_not_available_if_the_caches_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_copy, "last_level_cache", lambda: 1000 << 20)
    with pytest.raises(NotAvailable, match="caches hold 1000 MiB"):
        memory_copy.run(0, 0.0)


def test_the_largest_cache_is_used(tmp_path: Path) -> None:
    assert memory_copy.last_level_cache(tmp_path) == 0
    for index, size in enumerate(("64K", "1024K", "32M")):
        write(tmp_path, **{f"index{index}/size": f"{size}\n"})
    assert memory_copy.last_level_cache(tmp_path) == 32 * 2**20


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "max", "memory.current": "7"}, None),
        ({}, None),
        ({"memory.max": "1000", "memory.current": "400", "memory.stat": "anon 1\ninactive_file 100\n"}, 700),
        ({"memory.max": "1000", "memory.current": "400"}, 600),
        ({"memory.max": "1000", "memory.current": "1400"}, 1),
    ],
)
def test_available_memory_in_a_container(tmp_path: Path, files: dict[str, str], left: int | None) -> None:
    write(tmp_path, **files)
    assert memory._v2(tmp_path) == left


def test_a_cgroup_without_controllers_uses_its_parent_s_limit(tmp_path: Path) -> None:
    write(tmp_path, **{"memory.max": "1000", "memory.current": "400", "convoy-probe-1/cgroup.procs": "1"})
    assert memory._v2(tmp_path / "convoy-probe-1") == 600
    assert memory._v2(None) is None


def test_available_memory_on_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_v2", lambda folder: 300 * 2**20)
    monkeypatch.setattr(memory, "_v1", lambda folder: None)
    write(tmp_path, meminfo="MemTotal: 9 kB\nMemAvailable:  204800 kB\n")
    assert memory.available(tmp_path / "meminfo") == (200 - 64) * 2**20
    write(tmp_path, meminfo="MemAvailable:  2048000 kB\n")
    assert memory.available(tmp_path / "meminfo") == (300 - 64) * 2**20
    write(tmp_path, meminfo="MemAvailable:  8 kB\n")
    assert memory.available(tmp_path / "meminfo") == 1


def test_oom_kills_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convoy_agents.guard.sweep.cgroup.own_v2", lambda: tmp_path)
    monkeypatch.setattr("convoy_agents.guard.sweep.cgroup.own_v1", lambda name: None)
    assert memory.oom_kills() == 0
    write(tmp_path, **{"memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"})
    assert memory.oom_kills() == 2


NODE = {
    "proc/cpuinfo": "processor : 0\nmodel name : A 9000\nmicrocode : 0x1\nflags : fpu sse\n\nprocessor : 1\n",
    "proc/meminfo": "MemTotal:       24661234 kB\n",
    "proc/interrupts": "  CPU0 CPU1\n THR: 1 2 Thresholds\n MCE: 0 4 Machine checks\n",
    "proc/sys/kernel/random/boot_id": "b-1\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n",
    "sys/devices/system/cpu/online": "0-1\n",
    "sys/devices/system/node/node0/x": "",
    "sys/devices/system/node/node1/x": "",
    "sys/devices/system/node/power/x": "",
    "sys/devices/system/edac/mc/mc0/ce_count": "3\n",
    "sys/devices/system/edac/mc/mc1/ce_count": "4\n",
    "sys/devices/system/edac/mc/mc0/ue_count": "1\n",
    "sys/class/net/eth0/device/x": "",
    "sys/class/net/eth0/speed": "25000\n",
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/lo/speed": "0\n",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "sys/block/sda/device/x": "",
    "sys/block/sda/size": "2000000000\n",
    "sys/block/sda/queue/rotational": "0\n",
    "sys/block/loop0/size": "7\n",
}


def test_the_inventory_of_a_node(tmp_path: Path) -> None:
    write(tmp_path, **NODE)
    facts = inventory.common(tmp_path)
    assert facts["cpu.model"] == "A 9000"
    assert (facts["memory.gib"], facts["numa.nodes"], facts["cpu.online"]) == ("24", "2", "0-1")
    assert facts["driver.nvidia"] == "535.104.05"
    assert facts["nics"] == "1 x 25000Mb/s up"
    assert facts["fabric"] == "1 x 400 Gb/sec (4X NDR) 4: ACTIVE"
    assert facts["disks"] == "1 x 1024GB"
    own = inventory.own(tmp_path)
    assert (own["boot.id"], own["memory.ce_count"], own["memory.ue_count"]) == ("b-1", "7", "1")
    assert (own["interrupts.MCE"], own["interrupts.THR"]) == ("4", "3")
    assert not set(own) & set(facts)


@pytest.mark.parametrize(
    ("name", "text", "drifts"),
    [
        ("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)", True),
        ("sys/class/net/eth0/operstate", "down", True),
        ("proc/meminfo", "MemTotal:       20971520 kB\n", True),
        ("proc/meminfo", "MemTotal:       24661000 kB\n", False),
        ("proc/cpuinfo", NODE["proc/cpuinfo"].replace("fpu sse", "sse fpu"), False),
        ("proc/cpuinfo", NODE["proc/cpuinfo"].replace("fpu sse", "fpu"), True),
        ("proc/sys/kernel/random/boot_id", "b-2", False),
        ("sys/devices/system/edac/mc/mc0/ue_count", "2", False),
    ],
)
def test_the_digest_covers_only_facts_common_to_a_class(
    tmp_path: Path, name: str, text: str, drifts: bool
) -> None:
    write(tmp_path, **NODE)
    before = inventory.digest(inventory.common(tmp_path))
    write(tmp_path, **{name: text})
    assert (inventory.digest(inventory.common(tmp_path)) != before) is drifts


def test_the_torch_version_is_part_of_the_class_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = inventory.torch("")
    assert own and inventory.torch(sys.executable) == own
    with pytest.raises(subprocess.SubprocessError):
        inventory.torch("/bin/false")
    before = inventory.common(tmp_path)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 1.0\n")
    other.chmod(0o755)
    monkeypatch.setenv("CONVOY_PROBE_PYTHON", str(other))
    found = inventory.common(tmp_path)
    assert found["library.torch"] == "1.0"
    assert inventory.digest(found) != inventory.digest(before)


def test_an_empty_node_has_an_inventory(tmp_path: Path) -> None:
    assert set(inventory.common(tmp_path)) >= {"cpu.model", "disks"}
    assert "memory.ce_count" not in inventory.own(tmp_path)


SMI = (
    "0, NVIDIA H100 80GB HBM3, 96.00.30, 5, 16, 700.00, Enabled, GPU-aa, 0, 16, 31, 0x0000000000000000\n"
    "1, NVIDIA H100 80GB HBM3, 96.00.30, 5, 16, 700.00, Enabled, GPU-bb, [N/A], 8, 33, 0x0000000000000004\n"
    "a warning\n"
)


def test_accelerators_are_read(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'X'\n{SMI}X\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    found = nvidia.rows(str(program))
    common, own = nvidia.common(found), nvidia.own(found)
    assert (common["gpu.count"], own["gpu1.pcie.link.width.current"]) == ("2", "8")
    assert (own["gpu0.uuid"], own["gpu1.clocks_throttle_reasons.active"]) == ("GPU-aa", "0x0000000000000004")
    assert not set(common) & set(own)
    assert nvidia.rows(str(tmp_path / "nothing")) == []
    assert nvidia.common([]) == {}


def test_the_driver_version_of_open_modules_is_parsed(tmp_path: Path) -> None:
    write(tmp_path, v="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n")
    assert provenance.driver(tmp_path / "v") == "570.86.15"
    assert provenance.driver(tmp_path / "nothing") == ""
    assert set(asdict(provenance.provenance("1"))) == {"agent", "kernel", "driver", "boot_id"}


def test_the_file_system_of_a_folder(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    number = f"{device >> 8 & 0xFFF}:{device & 0xFF}"
    rows = f"1 0 9:9 / / rw - ext4 /dev/a rw\n2 1 {number} / /x rw,relatime shared:1 - xfs /dev/b rw\n"
    write(tmp_path, mounts=rows)
    assert disk.file_system(tmp_path, tmp_path / "mounts") == "xfs"
    write(tmp_path, mounts="1 0 9:9 / / rw - ext4 /dev/a rw\n")
    assert disk.file_system(tmp_path, tmp_path / "mounts") == ""


class FakeGpu:
    """A GPU whose runs take `seconds` each. It has the parts of torch that the probes use to measure time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.runs = 0
        self.cuda = SimpleNamespace(Event=self._event)

    def once(self) -> None:
        self.runs += 1
        self.now += self.seconds

    def _event(self, enable_timing: bool) -> SimpleNamespace:
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda later: (later.at - event.at) * 1e3
        return event


@pytest.mark.parametrize("seconds", [1e-3, 0.5])
def test_short_runs_on_a_gpu_share_samples_that_fill_the_probes_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    gpu, total = FakeGpu(seconds), 60.0
    monkeypatch.setattr("time.monotonic", lambda: gpu.now)
    found = cuda._rates(gpu, total, 2.0, gpu.once)
    assert total <= gpu.now <= total + 12 * max(seconds, total / MAX_SAMPLES)
    assert len(found.samples) < MAX_SAMPLES
    assert found.samples == pytest.approx([2.0 / seconds] * len(found.samples))
