"""A feed-forward layer of many experts, of which each token uses a few (mixture of experts).

A gate gives each token a probability for each expert. The token is computed by the `top_k` most probable
experts, and their outputs are added with these probabilities, which are scaled to a sum of 1. Without a
penalty, a few experts get most of the tokens. The penalty is that of the Switch Transformer (W. Fedus et al.,
JMLR 23, 2022, equation 4).

The letters in shapes are N tokens, C width, E experts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Experts(nn.Module):
    """The experts of one block. Each has the shape of a dense feed-forward layer."""

    def __init__(self, width: int, experts: int, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(width, experts, bias=False)
        # One tensor for all experts: an expert without a token still has a gradient, so
        # DistributedDataParallel need not search for unused parameters.
        self.widen = nn.Parameter(torch.empty(experts, width, 4 * width))
        self.widen_bias = nn.Parameter(torch.zeros(experts, 4 * width))
        self.narrow = nn.Parameter(torch.empty(experts, 4 * width, width))
        self.narrow_bias = nn.Parameter(torch.zeros(experts, width))
        self.loads = torch.zeros(experts)
        """Number of tokens that each expert got in the last forward pass."""
        self.penalty: Tensor = torch.zeros(())
        """Penalty of the last forward pass: 1 if all experts get equally many tokens, more if not."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all tokens. `x` has the width as its last dimension."""
        x_NC = x.reshape(-1, x.shape[-1])
        odds_NE = self.gate(x_NC).softmax(dim=-1)
        weights, chosen = odds_NE.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        count = odds_NE.shape[1]
        self.loads = torch.bincount(chosen.flatten(), minlength=count).detach()
        shares = self.loads / chosen.numel()
        self.penalty = count * (shares * odds_NE.mean(dim=0)).sum()
        out_NC = torch.zeros_like(x_NC)
        for expert in self.loads.nonzero().flatten().tolist():
            tokens, place = (chosen == expert).nonzero(as_tuple=True)
            hidden = F.gelu(x_NC[tokens] @ self.widen[expert] + self.widen_bias[expert])
            fed = hidden @ self.narrow[expert] + self.narrow_bias[expert]
            out_NC = out_NC.index_add(0, tokens, weights[tokens, place, None] * fed)
        return out_NC.view_as(x)

    @property
    def imbalance(self) -> float:
        """Return the tokens of the busiest expert over the mean, in the last forward pass."""
        return float(self.loads.max() * len(self.loads) / self.loads.sum().clamp(min=1))
