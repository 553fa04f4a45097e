"""Probes of accelerators with torch. Each probe raises NotAvailable if torch or the accelerator is missing.

The module imports torch at run time by its name, because the agent's own interpreter may lack torch.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import os
from collections.abc import Callable
from typing import Any

from convoy_agents.guard.sweep.probe import MAX_SAMPLES, Measured, NotAvailable, sample_numbers

_GEMM = 8192
_COPY_BYTES = 2**30
"""Bytes of one copy within a device's memory. This is twenty times the device's cache."""
_LINK_BYTES = 256 * 2**20
"""Bytes of one transfer over a link."""
_WARM_UP_RUNS = 10
_SHARE_OF_SAMPLES = 0.75
"""Share of the maximum number of samples that a probe takes in its time. The rest allows for a device that
becomes faster.
"""
_STEPS = 30
_DIGITS = 32
_RUNS = 3


def gemm(accelerator: int, seconds: float) -> Measured:
    """Measure the speed of bfloat16 matrix products in TFLOP/s."""
    torch, device = _device(accelerator)
    left = torch.randn(_GEMM, _GEMM, device=device, dtype=torch.bfloat16)
    right = torch.randn(_GEMM, _GEMM, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(left)
    return _rates(torch, seconds, 2 * _GEMM**3 / 1e12, lambda: torch.mm(left, right, out=out))


def hbm(accelerator: int, seconds: float) -> Measured:
    """Measure the bandwidth of a device's memory in GB/s. A copy reads and writes each byte, so each copied
    byte counts twice.
    """
    torch, device = _device(accelerator)
    source = torch.zeros(_COPY_BYTES, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return _rates(torch, seconds, 2 * _COPY_BYTES / 1e9, lambda: target.copy_(source))


def to_device(accelerator: int, seconds: float) -> Measured:
    """Measure the bandwidth from pinned host memory to the device in GB/s."""
    torch, device = _device(accelerator)
    host = torch.zeros(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(_LINK_BYTES, device=device, dtype=torch.uint8)
    return _rates(torch, seconds, _LINK_BYTES / 1e9, lambda: there.copy_(host, non_blocking=True))


def from_device(accelerator: int, seconds: float) -> Measured:
    """Measure the bandwidth from the device to pinned host memory in GB/s."""
    torch, device = _device(accelerator)
    host = torch.zeros(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.zeros(_LINK_BYTES, device=device, dtype=torch.uint8)
    return _rates(torch, seconds, _LINK_BYTES / 1e9, lambda: host.copy_(there, non_blocking=True))


def peer(accelerator: int, seconds: float) -> Measured:
    """Measure the bandwidth from this device to the node's next device in GB/s. Raises NotAvailable if the
    node has one device, or if the devices cannot access each other's memory.
    """
    torch, device = _device(accelerator)
    other = (accelerator + 1) % torch.cuda.device_count()
    if other == accelerator:
        raise NotAvailable("the node has one accelerator")
    if not torch.cuda.can_device_access_peer(accelerator, other):
        raise NotAvailable(f"accelerators {accelerator} and {other} cannot access each other's memory")
    source = torch.zeros(_LINK_BYTES, device=device, dtype=torch.uint8)
    target = torch.empty(_LINK_BYTES, device=f"cuda:{other}", dtype=torch.uint8)
    return _rates(torch, seconds, _LINK_BYTES / 1e9, lambda: target.copy_(source, non_blocking=True))


def all_reduce(accelerator: int, seconds: float) -> Measured:
    """Measure the bandwidth of an all-reduce over all devices of the node in GB/s per link, in one process.
    Raises NotAvailable if the node has one device.
    """
    torch, _ = _device(accelerator)
    count = torch.cuda.device_count()
    if count < 2:
        raise NotAvailable("the node has one accelerator")
    nccl = importlib.import_module("torch.cuda.nccl")
    parts = [torch.ones(_LINK_BYTES // 4, device=f"cuda:{one}") for one in range(count)]

    def once() -> None:
        nccl.all_reduce(parts)
        for one in range(count):
            torch.cuda.synchronize(one)

    # Compute the bus bandwidth as nccl-tests does: each of the n devices sends 2 (n - 1) / n times the bytes
    # of its buffer.
    return _rates(torch, seconds, _LINK_BYTES * 2 * (count - 1) / count / 1e9, once)


def fingerprint(accelerator: int, seconds: float) -> Measured:
    """Repeat a short training with a fixed seed, and return one digest per repetition. A digest covers all
    values of every step.
    """
    # Deterministic algorithms need this variable. Set it before the first use of the device, because cuBLAS
    # reads it then.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch, device = _device(accelerator)
    torch.use_deterministic_algorithms(True)
    return Measured(digests=[_train(torch, device) for _ in range(_RUNS)])


def _train(torch: Any, device: str) -> str:
    draw = torch.Generator().manual_seed(20240229)
    sizes = ((512, 1024), (1024, 256))
    weights = [(torch.randn(size, generator=draw) / size[0] ** 0.5).to(device) for size in sizes]
    inputs, wanted = (torch.randn(256, size, generator=draw).to(device) for size in (512, 256))
    digest = hashlib.sha256()
    for _ in range(_STEPS):
        for one in weights:
            one.requires_grad_(True)
        hidden = torch.tanh(inputs @ weights[0])
        wrong = hidden @ weights[1] - wanted
        slopes = torch.autograd.grad((wrong**2).mean(), weights)
        weights = [(one - 0.1 * slope).detach() for one, slope in zip(weights, slopes, strict=True)]
        # Include all intermediate values, because the weights alone do not reveal every wrong bit (see
        # fingerprint.py).
        for values in (hidden, wrong, *slopes, *weights):
            digest.update(values.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:_DIGITS]


def _device(accelerator: int) -> tuple[Any, str]:
    """Return the torch module and torch's name of the device. Raises NotAvailable if torch or the device is
    missing.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise NotAvailable(f"this interpreter has no torch: {error}") from error
    if not torch.cuda.is_available():
        raise NotAvailable("torch finds no accelerator")
    if accelerator >= torch.cuda.device_count():
        raise NotAvailable(f"torch finds only {torch.cuda.device_count()} accelerators")
    torch.cuda.set_device(accelerator)
    return torch, f"cuda:{accelerator}"


def _rates(torch: Any, seconds: float, amount: float, once: Callable[[], object]) -> Measured:
    """Run `once` repeatedly until `seconds` have passed, and return the rate of each sample, by device
    events. `amount`: the work of one run, for example in TFLOP or GB. The warm-up runs come first and are no
    samples.

    A sample has several runs if one run is short. Otherwise the maximum number of samples would end the
    probe long before `seconds`, while the device is still cool.
    """
    half = _WARM_UP_RUNS // 2
    for _ in range(half):
        once()
    one = _time(torch, half, once) / half
    runs = max(1, math.ceil(seconds / (_SHARE_OF_SAMPLES * MAX_SAMPLES) / one))
    return Measured([runs * amount / _time(torch, runs, once) for _ in sample_numbers(seconds)])


def _time(torch: Any, runs: int, once: Callable[[], object]) -> float:
    """Return the seconds of some runs, from the device's events."""
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(runs):
        once()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3
