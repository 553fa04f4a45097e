"""Warms up the zygote, so that the ranks need not repeat slow first actions. It imports torch and makes one
tiny training step.
"""
# ruff: noqa: PTH110 - pathlib would be one import more than a fresh interpreter has

from __future__ import annotations

import importlib
import os
import sys

_MODULES = (
    "torch.distributed",
    "torch.distributed.rendezvous",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
)


def warm_up() -> tuple[str, str]:
    """Prepare this process to be forked.

    Returns the version of torch (empty without torch), and the reason why no rank may be forked (empty if
    ranks may be forked).
    """
    for name in (
        "argparse",
        "dataclasses",
        "faulthandler",
        "logging",
        "pathlib",
        "pickle",
        "pkgutil",
        "runpy",
        "traceback",
    ):
        importlib.import_module(name)
    importlib.import_module("convoy_workloads.launcher.child")
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        return "", "" if error.name == "torch" else f"the zygote cannot import torch: {error}"
    # Return the reason, so that the ranks start cold. Each rank then reports the broken torch with its own
    # stack trace.
    except Exception as error:
        return "", f"the zygote cannot import torch: {error}"
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    try:
        if not _cuda_visible():
            _tiny_step()
    except Exception as error:  # The ranks still work, but start a little slower.
        problem = f"{type(error).__name__}: {error}"
        print(
            f"convoy: the zygote's warm-up step failed, so ranks start a little slower: {problem}",
            file=sys.stderr,
        )
    for name in ("runtime", "runtime.tiers.planning", "runtime.folder.snapshot", "launcher.thread_pools"):
        importlib.import_module(f"convoy_workloads.{name}")
    thread_pools = sys.modules["convoy_workloads.launcher.thread_pools"]
    thread_pools.find_openblas()
    return str(torch.__version__), ""


def _cuda_visible() -> bool:
    """Return True if a training step might start CUDA, which does not survive a fork. The check does not
    load the driver.
    """
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0")


def _tiny_step() -> None:
    """Make one forward pass, backward pass and optimizer step with a tiny model, on one thread. With more
    threads, the forks of this process would hang in libgomp.

    The first optimizer step alone imports about 800 modules. The state of the random generators does not
    change.
    """
    from torch import get_rng_state, nn, optim, set_num_threads, set_rng_state, zeros  # noqa: PLC0415

    set_num_threads(1)
    state = get_rng_state()
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    optimizer = optim.AdamW(model.parameters())
    nn.functional.cross_entropy(model(zeros(2, 4)), zeros(2).long()).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    set_rng_state(state)
