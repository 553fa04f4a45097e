"""The model of a job that trains none."""

from __future__ import annotations

import torch


class NoModel(torch.nn.Module):
    """A model without parameters. A checkpoint needs a model, and a model at least one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("none", torch.zeros(1, dtype=torch.uint8))
