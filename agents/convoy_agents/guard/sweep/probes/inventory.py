"""Collects facts about the node's hardware and software, and reads the node's error counters."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from convoy_agents.guard.sweep import cgroup
from convoy_agents.guard.sweep.probe import Measured
from convoy_agents.guard.sweep.probes import nvidia
from convoy_agents.guard.sweep.provenance import driver

PYTHON = "CONVOY_PROBE_PYTHON"
"""Name of the environment variable with the path of an interpreter that has torch. Without it, this
interpreter is used.
"""
_DIGITS = 32
_TORCH_VERSION = """
from importlib.metadata import distributions
print(next((one.version for one in distributions(name="torch")), ""))
"""
_TORCH_SECONDS = 10.0
_KIB_PER_GIB = 2**20
"""Number of KiB in one GiB."""


def run(accelerator: int, seconds: float) -> Measured:
    """Return all facts about the node, and one digest. The digest covers the facts that all nodes of a
    class share. The names of all other facts start with `own.`.
    """
    root, cards = Path("/"), nvidia.rows()
    alike = {**common(root), **nvidia.common(cards)}
    apart = {f"own.{name}": value for name, value in {**own(root), **nvidia.own(cards)}.items()}
    return Measured(digests=[digest(alike)], facts={**alike, **apart})


def digest(alike: dict[str, str]) -> str:
    """Return a digest of facts that does not depend on their order."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(alike.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def common(root: Path) -> dict[str, str]:
    """Return the facts that all nodes of a class share. `root` is the folder that contains /proc and /sys."""
    cpu = _cpu(root)
    return {
        "cpu.model": cpu.get("model name") or cpu.get("CPU part", ""),
        "cpu.flags": _short(" ".join(sorted((cpu.get("flags") or cpu.get("Features", "")).split()))),
        "cpu.microcode": cpu.get("microcode", ""),
        "cpu.online": _text(root / "sys/devices/system/cpu/online"),
        "cpu.usable": str(len(os.sched_getaffinity(0))),
        "cpu.governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "numa.nodes": str(len(list((root / "sys/devices/system/node").glob("node[0-9]*")))),
        # Round to GiB, because the kernel reserves a varying amount of memory.
        "memory.gib": str(round(_meminfo(root).get("MemTotal", 0) / _KIB_PER_GIB)),
        "kernel": os.uname().release,
        "driver.nvidia": driver(root / "proc/driver/nvidia/version"),
        "nics": _nics(root),
        "fabric": _fabric(root),
        "disks": _disks(root),
        # Include the versions of these libraries, because the fingerprint probes compute with them.
        "library.numpy": version("numpy"),
        "library.torch": torch(os.environ.get(PYTHON, "")),
    }


def torch(python: str) -> str:
    """Return the version of torch in the interpreter at the path `python`, or in this interpreter if the
    path is empty. Return an empty text if that interpreter has no torch.

    Raises OSError or subprocess.SubprocessError if the interpreter cannot run. The probe then fails, so the
    node's class stays unknown.
    """
    if not python:
        with contextlib.suppress(PackageNotFoundError):
            return version("torch")
        return ""
    completed = subprocess.run(
        [python, "-P", "-c", _TORCH_VERSION],
        capture_output=True,
        text=True,
        timeout=_TORCH_SECONDS,
        check=True,
    )
    return completed.stdout.strip()


def own(root: Path) -> dict[str, str]:
    """Return the facts that are specific to this node: its identity and its error counters. Counters that
    the node lacks are omitted.
    """
    facts = {
        "boot.id": _text(root / "proc/sys/kernel/random/boot_id"),
        "machine": _text(root / "sys/class/dmi/id/product_uuid"),
    }
    for kind in ("ce_count", "ue_count"):
        counts = [_text(path) for path in (root / "sys/devices/system/edac/mc").glob(f"mc*/{kind}")]
        if numbers := [int(count) for count in counts if count.isdigit()]:
            facts[f"memory.{kind}"] = str(sum(numbers))
    for name in ("MCE", "THR"):
        if (count := _interrupts(root, name)) is not None:
            facts[f"interrupts.{name}"] = str(count)
    for folder in (cgroup.nearest_with(cgroup.own_v2(), "cpu.max"), cgroup.own_v1("cpu")):
        for line in _text(folder / "cpu.stat").splitlines() if folder else []:
            name, _, value = line.partition(" ")
            if name in {"nr_throttled", "throttled_usec", "throttled_time"}:
                facts[f"cgroup.{name}"] = value
    return facts


def _cpu(root: Path) -> dict[str, str]:
    """Return the fields of the first core in /proc/cpuinfo."""
    first = _text(root / "proc/cpuinfo").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _meminfo(root: Path) -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    return {name: int(value) for name, value in found}


def _nics(root: Path) -> str:
    """Return a summary of the speeds and states of the physical network cards in the agent's network
    namespace.
    """
    cards = [path.parent for path in (root / "sys/class/net").glob("*/device")]
    return _summary(f"{_text(card / 'speed') or '?'}Mb/s {_text(card / 'operstate')}" for card in cards)


def _fabric(root: Path) -> str:
    """Return a summary of the rates and states of InfiniBand and RoCE ports, which are visible in every
    namespace.
    """
    ports = (root / "sys/class/infiniband").glob("*/ports/*")
    return _summary(f"{_text(port / 'rate')} {_text(port / 'state')}" for port in ports)


def _disks(root: Path) -> str:
    """Return a summary of the disks: their sizes in GB, and which of them are rotational."""
    disks = [path.parent for path in (root / "sys/block").glob("*/device")]
    return _summary(
        f"{int(_text(disk / 'size') or 0) * 512 // 10**9}GB"
        f"{' rotational' if _text(disk / 'queue/rotational') == '1' else ''}"
        for disk in disks
    )


def _interrupts(root: Path, name: str) -> int | None:
    """Return the number of interrupts `name` on all cores: MCE (machine check exceptions) or THR (thermal
    events). None if the kernel does not list the interrupt.
    """
    for line in _text(root / "proc/interrupts").splitlines():
        first, _, rest = line.strip().partition(":")
        if first == name:
            return sum(int(word) for word in rest.split() if word.isdigit())
    return None


def _summary(things: object) -> str:
    """Return the number of occurrences of each text, such as `2 x this, 1 x that`."""
    counts = Counter(things)  # type: ignore[call-overload]  # an iterable of text
    return ", ".join(f"{count} x {thing}" for thing, count in sorted(counts.items()))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""
