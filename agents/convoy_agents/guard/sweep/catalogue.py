"""The catalogue of all probes by name, in the order in which a sweep runs them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from convoy_agents.guard.sweep.probe import AcceleratorUse, Probe, Tier

_PROBES = "convoy_agents.guard.sweep.probes"


def _cuda(
    name: str, unit: str, seconds: float, function: str, accelerator_use: AcceleratorUse = AcceleratorUse.EACH
) -> Probe:
    # These probes have no memory limit, because drivers map more address space than the node has memory.
    run = f"{_PROBES}.cuda:{function}"
    return Probe(name, Tier.L1, unit, True, seconds, run, memory=0, accelerator_use=accelerator_use)


ALL: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        # This probe has no memory limit, because it runs nvidia-smi, which would inherit the limit.
        Probe("inventory", Tier.L0, "", True, 20, f"{_PROBES}.inventory:run", memory=0),
        # This probe has no memory limit, because a matrix product on many cores reserves unused address space
        # for each core.
        Probe("cpu-gemm", Tier.L1, "GFLOP/s", True, 10, f"{_PROBES}.gemm:run", memory=0),
        Probe("memory-copy", Tier.L1, "GB/s", True, 5, f"{_PROBES}.memory_copy:run", memory=2**31),
        Probe("jitter", Tier.L1, "us", False, 5, f"{_PROBES}.jitter:run"),
        Probe("loopback", Tier.L1, "MB/s", True, 5, f"{_PROBES}.loopback:run"),
        Probe("disk-write", Tier.L1, "MB/s", True, 10, f"{_PROBES}.disk:write"),
        Probe("disk-read", Tier.L1, "MB/s", True, 10, f"{_PROBES}.disk:read"),
        Probe("fingerprint", Tier.L1, "", True, 20, f"{_PROBES}.fingerprint:run", one_thread=True),
        _cuda("gemm", "TFLOP/s", 60, "gemm"),
        _cuda("hbm", "GB/s", 10, "hbm"),
        _cuda("pcie-h2d", "GB/s", 5, "to_device", AcceleratorUse.IN_TURN),
        _cuda("pcie-d2h", "GB/s", 5, "from_device", AcceleratorUse.IN_TURN),
        _cuda("nvlink", "GB/s", 10, "peer"),
        _cuda("nccl", "GB/s", 10, "all_reduce", AcceleratorUse.ALL),
        _cuda("gpu-fingerprint", "", 10, "fingerprint"),
        # The agent itself runs the pair probes, without a child process, so they name no function.
        Probe("pair-latency", Tier.L2, "us", False, 5, ""),
        Probe("pair-bandwidth", Tier.L2, "MB/s", True, 10, ""),
    )
}


def select(tiers: Collection[str], names: Sequence[str], accelerators: int) -> list[Probe]:
    """Return the probes of the given tiers. If `names` is not empty, return only the probes with these
    names. Raises ValueError for an unknown name or tier.

    If the node has no accelerators, probes of accelerators are returned only if `names` contains them.
    """
    if unknown := [name for name in names if name not in ALL]:
        raise ValueError(f"probes: {', '.join(unknown)}: no such probe; there are {', '.join(ALL)}")
    if strange := [tier for tier in tiers if tier not in set(Tier)]:
        raise ValueError(f"tiers: {', '.join(strange)}: no such tier")
    return [
        probe
        for probe in ALL.values()
        if probe.tier in tiers
        and (probe.name in names if names else accelerators or probe.accelerator_use is AcceleratorUse.NONE)
    ]
