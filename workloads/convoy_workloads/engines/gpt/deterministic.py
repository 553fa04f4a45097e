"""The same bits in each run on a GPU. Without this, kernels such as the backward pass of attention add in any
order, and a restored run ends with other bits than an undisturbed one.
"""

from __future__ import annotations

import os

import torch


def be_deterministic(device: torch.device) -> None:
    """Ask for deterministic algorithms if the device is a GPU. Call this before the first use of the GPU,
    because cuBLAS reads the variable then.
    """
    if device.type == "cuda":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
