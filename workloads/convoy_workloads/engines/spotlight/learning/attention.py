"""The transformer block of the problem grid. Every token attends to every other one."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention, then a feed-forward network. Both add their output to the tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def project(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each of shape [n, heads, tokens, width / heads]."""
        count, length, width = tokens.shape
        split = self.qkv(self.norm_attention(tokens)).view(count, length, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        return queries, keys, values

    def mix(self, tokens: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the tokens after the block. `keys` and `values` may be those of more tokens."""
        mixed = F.scaled_dot_product_attention(queries, keys, values)
        tokens = tokens + self.out(mixed.transpose(1, 2).reshape(tokens.shape))
        fed: Tensor = self.narrow(F.gelu(self.widen(self.norm_feed(tokens))))
        return tokens + fed

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens after the block, of shape [n, tokens, width]."""
        return self.mix(tokens, *self.project(tokens))
