"""What a rank would do first, done once in the zygote: import torch, compile nothing, take one tiny step."""
# ruff: noqa: PTH110 - as few imports as a fresh interpreter

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
    """Prepares this process to be forked.

    Returns the version of torch, empty without it, and why nothing may be forked, empty where all is well.
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
    except Exception as error:  # a broken torch is the ranks' to report, with their own stack traces
        return "", f"the zygote cannot import torch: {error}"
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    try:
        if not _cuda_visible():
            _tiny_step()
    except Exception as error:  # the ranks are then forked a little less warm
        print(f"convoy: the zygote's step fails: {type(error).__name__}: {error}", file=sys.stderr)
    for name in ("runtime", "runtime.tiers.planning", "runtime.folder.snapshot", "launcher.pools"):
        importlib.import_module(f"convoy_workloads.{name}")
    pools = sys.modules["convoy_workloads.launcher.pools"]
    pools.find()
    return str(torch.__version__), ""


def _cuda_visible() -> bool:
    """Whether a step might start CUDA, which does not survive a fork. Asks the kernel, not the driver."""
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0")


def _tiny_step() -> None:
    """One forward, backward and optimizer step on one thread: with more, forked children hang in libgomp for
    good.

    The first optimizer step alone imports some 800 modules. Generators end as they began.
    """
    from torch import get_rng_state, nn, optim, set_num_threads, set_rng_state, zeros  # noqa: PLC0415

    set_num_threads(1)
    state = get_rng_state()
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    optimizer = optim.AdamW(model.parameters())
    nn.functional.cross_entropy(model(zeros(2, 4)), zeros(2).long()).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    set_rng_state(state)
