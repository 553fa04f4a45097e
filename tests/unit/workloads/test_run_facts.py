"""Tests of the facts about a run that the first rank of a pod collects."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convoy_agents.pods.messages import DataFolder, parse_progress
from convoy_workloads.runtime.facts import collector, files
from convoy_workloads.runtime.facts.accelerators import Devices
from convoy_workloads.runtime.facts.collector import FactsCollector, count_folders
from convoy_workloads.runtime.facts.files import FileCounter, Folder
from convoy_workloads.runtime.facts.mounts import data_folders
from convoy_workloads.runtime.facts.processors import ContainerClock
from convoy_workloads.runtime.progress import Meter
from convoy_workloads.runtime.rank_context import RankContext

POD = "/var/lib/kubelet/pods/1f/volumes"
TABLE = f"""\
22 27 0:21 / / rw,relatime - overlay overlay rw
23 22 0:22 / /proc rw,nosuid - proc proc rw
24 22 0:6 / /dev rw,nosuid - tmpfs tmpfs rw
25 22 8:1 /var/lib/containerd/sandboxes/1f/hosts /etc/hosts rw - ext4 /dev/sda1 rw
26 22 8:1 {POD}/kubernetes.io~empty-dir/scratch /scratch rw,relatime shared:1 - ext4 /dev/sda1 rw
27 22 8:1 {POD}/kubernetes.io~configmap/scripts /scripts ro - ext4 /dev/sda1 rw
28 22 0:50 / /var/run/secrets/kubernetes.io/serviceaccount ro - tmpfs tmpfs rw
29 22 0:51 / /dev/shm rw - tmpfs shm rw
30 22 0:52 /export/set\\040one /data ro,relatime - nfs4 server:/export rw
31 22 8:1 /opt/convoy/pods/1f /var/run/convoy ro - ext4 /dev/sda1 rw
32 22 8:1 {POD}/kubernetes.io~empty-dir/convoy-home /run/convoy-home rw - ext4 /dev/sda1 rw
33 22 8:16 / /my\\040data rw - xfs /dev/sdb rw
34 22 8:1 /usr/lib/libcuda.so /usr/lib/libcuda.so ro - ext4 /dev/sda1 rw
garbage
"""


def test_only_data_volumes_are_counted() -> None:
    assert data_folders(TABLE) == ["/scratch", "/data", "/my data"]


def test_at_most_four_volumes_are_counted_each_once() -> None:
    lines = [f"{n} 22 8:1 / /data-{n % 6} rw - ext4 /dev/sda1 rw" for n in range(12)]
    assert data_folders("\n".join(lines)) == ["/data-0", "/data-1", "/data-2", "/data-3"]


def test_the_files_of_nested_folders_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name, size in (("one", 10), ("a/two", 20), ("a/b/three", 70)):
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert FileCounter().count(str(tmp_path)) == Folder(str(tmp_path), 3, 20)


def test_the_limit_of_entries_holds_for_all_folders_together(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for number in range(6):
            (tmp_path / folder / str(number)).write_bytes(b"x")
    counter = FileCounter(entries=8)
    found = [counter.count(str(tmp_path / folder)) for folder in ("a", "b")]
    assert [one.files for one in found if one] == [6, 2]
    assert counter.count(str(tmp_path)) is None


def test_the_limit_of_time_stops_the_count(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).write_bytes(b"x")
    times = iter(float(n) for n in range(100))
    found = FileCounter(seconds=5.5, clock=lambda: next(times)).count(str(tmp_path))
    assert found is not None
    assert found.files < 5


def test_a_folder_that_cannot_be_read_has_no_files(tmp_path: Path) -> None:
    assert FileCounter().count(str(tmp_path / "gone")) is None
    assert FileCounter().count(str(tmp_path)) is None, "it is empty"
    assert count_folders("33 22 8:16 / /nowhere/at/all rw - xfs /dev/sdb rw") == []


@pytest.mark.parametrize(
    ("membership", "name", "text"),
    [
        ("0::/\n", "cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
        ("0::/kubepods/pod1/c1\n", "kubepods/pod1/c1/cpu.stat", "usage_usec 2500000\n"),
        ("0::/kubepods/pod1/c1\n", "cpu.stat", "usage_usec 2500000\n"),
        ("4:cpu,cpuacct:/kubepods/c1\n", "cpu,cpuacct/kubepods/c1/cpuacct.usage", "2500000000\n"),
        ("4:cpu,cpuacct:/kubepods/c1\n", "cpuacct/cpuacct.usage", "2500000000\n"),
    ],
)
def test_the_clock_reads_both_versions_of_cgroups(
    tmp_path: Path, membership: str, name: str, text: str
) -> None:
    file = tmp_path / "root" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (tmp_path / "cgroup").write_text(membership)
    assert ContainerClock(tmp_path / "root", tmp_path / "cgroup").seconds() == 2.5


def test_a_kernel_without_cgroups_has_no_clock(tmp_path: Path) -> None:
    assert ContainerClock(tmp_path, tmp_path / "cgroup").seconds() is None
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.stat").write_text("nr_periods 0\n")
    assert ContainerClock(tmp_path, tmp_path / "cgroup").seconds() is None


def test_without_the_drivers_library_there_are_no_devices() -> None:
    def load(_: str) -> Any:
        raise OSError

    found = Devices(load)
    assert (found.count, found.busy()) == (0, None)


class Driver:
    """Acts as the driver's library. Each device is busy for the given percentages."""

    def __init__(self, *percent: int | None, fails: str = "") -> None:
        self._percent, self._fails = percent, fails

    def nvmlInit_v2(self) -> int:
        return int(self._fails == "init")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self._percent)
        return int(self._fails == "count")

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:
        handle._obj.value = number + 1
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rate: Any) -> int:
        percent = self._percent[handle.value - 1]
        rate._obj.gpu = percent or 0
        return int(percent is None)


@pytest.mark.parametrize(
    ("driver", "count", "busy"),
    [
        (Driver(40, 80), 2, 0.6),
        (Driver(40, None), 2, 0.4),
        (Driver(None), 1, None),
        (Driver(), 0, None),
        (Driver(40, fails="init"), 0, None),
        (Driver(40, fails="count"), 0, None),
        (object(), 0, None),
    ],
)
def test_an_average_device_is_busy(driver: Any, count: int, busy: float | None) -> None:
    found = Devices(lambda _: driver)
    assert (found.count, found.busy()) == (count, busy if busy is None else pytest.approx(busy))


LAUNCHED = RankContext(incarnation=1, socket="/tmp/socket")


class Stop(Exception):
    """Ends the collector's thread."""


def collect(monkeypatch: pytest.MonkeyPatch, context: RankContext, samples: int) -> FactsCollector:
    """Return a collector whose work was done without a thread, for a number of samples."""
    found = FactsCollector(context)
    left = [samples]

    def sleep(_: float) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Stop

    class Thread:
        def __init__(self, target: Callable[[], None], **_: object) -> None:
            self.start = target

    monkeypatch.setattr(collector.threading, "Thread", Thread)
    monkeypatch.setattr(collector.time, "sleep", sleep)
    with contextlib.suppress(Stop):
        found.message()
    return found


def test_the_first_rank_of_a_pod_collects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5)
    table = tmp_path / "mounts"
    table.write_text(f"33 22 8:16 / {tmp_path} rw - xfs /dev/sdb rw\n")
    monkeypatch.setattr(collector, "MOUNT_TABLE", table)
    monkeypatch.setattr(collector, "NICE", 0)
    found = collect(monkeypatch, LAUNCHED, samples=1).message()
    assert found is not None
    assert found["folders"] == [{"path": str(tmp_path), "files": 2, "medianBytes": 5}]
    assert found["ms"] >= 0
    read = parse_progress({"type": "progress", "step": 1, "facts": found})
    assert read.facts is not None
    assert read.facts.folders == (DataFolder(str(tmp_path), 2, 5),), "the agent reads the message"
    assert read.facts.python == platform.python_version()


def test_the_version_of_torch_is_that_of_the_loaded_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13.0+cpu"))
    assert collector.versions()["torch"] == "2.13.0+cpu"
    monkeypatch.delitem(sys.modules, "torch")
    assert "torch" not in collector.versions()


@pytest.mark.parametrize(
    "context",
    [RankContext(), RankContext(incarnation=1), RankContext(incarnation=1, socket="/s", local_rank=1)],
)
def test_other_ranks_collect_nothing(monkeypatch: pytest.MonkeyPatch, context: RankContext) -> None:
    assert collect(monkeypatch, context, samples=3).message() is None


def test_the_facts_travel_with_the_progress() -> None:
    for facts in (None, {"ms": 1000}):
        meter = Meter(facts=lambda found=facts: found)
        meter.observe(1, 0.0)
        assert meter.message(0).get("facts") == facts


def test_the_limits_are_those_of_the_documentation() -> None:
    assert (files.MAX_ENTRIES, files.MAX_SECONDS) == (20_000, 2.0)
