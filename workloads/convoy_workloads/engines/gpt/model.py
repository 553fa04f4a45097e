"""A decoder-only transformer with pre-norm blocks, causal attention, and one embedding for input and
output.

The letters in shapes and variable names are B batch, T time, C width, H heads, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convoy_workloads.engines.gpt.experts import Experts
from convoy_workloads.runtime import DataError

VOCABULARY = 256
"""Number of tokens: one per byte value."""


class Shape:
    """The part of a model's shape that its tensors do not show. It is saved with the weights, so that other
    programs can use them.
    """

    def __init__(self, heads: int, top_k: int = 0) -> None:
        """`top_k`: number of experts that a token uses; 0 for a model without experts."""
        self.heads = heads
        self.top_k = top_k

    def state_dict(self) -> dict[str, int]:
        """Return the values to save."""
        return {"heads": self.heads, **({"top_k": self.top_k} if self.top_k else {})}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Raise DataError if the saved model has another shape."""
        if state["heads"] != self.heads:
            raise DataError(
                f"the checkpoint has {state['heads']} attention heads, but params.heads is {self.heads}: set "
                f"it to {state['heads']}, or start from another checkpoint"
            )
        if (top_k := state.get("top_k", 0)) != self.top_k:
            raise DataError(
                f"a token uses {top_k} experts in the checkpoint, but {self.top_k} by the parameters: set "
                "params.experts and params.top_k to those of the training, or start from another checkpoint"
            )


class Block(nn.Module):
    """An attention layer, then a feed-forward network that is four times as wide. Each adds its output to
    the residual stream.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Return the residual stream after this block."""
        x_BTC = self.attend(x_BTC)
        fed_BTC: Tensor = self.narrow(F.gelu(self.widen(self.norm_feed(x_BTC))))
        return x_BTC + fed_BTC

    def attend(self, x_BTC: Tensor) -> Tensor:
        """Return the residual stream after the attention layer."""
        B, T, C = x_BTC.shape
        qkv = self.qkv(self.norm_attention(x_BTC)).view(B, T, 3, self.heads, C // self.heads)
        q_BHTc, k_BHTc, v_BHTc = qkv.permute(2, 0, 3, 1, 4)
        mixed_BHTc = F.scaled_dot_product_attention(q_BHTc, k_BHTc, v_BHTc, is_causal=True)
        mixed_BTC: Tensor = self.out(mixed_BHTc.transpose(1, 2).reshape(B, T, C))
        return x_BTC + mixed_BTC


class ExpertBlock(Block):
    """A block whose feed-forward network is a mixture of experts."""

    def __init__(self, width: int, heads: int, experts: int, top_k: int) -> None:
        super().__init__(width, heads)
        del self.widen, self.narrow
        self.experts = Experts(width, experts, top_k)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Return the residual stream after this block."""
        x_BTC = self.attend(x_BTC)
        fed_BTC: Tensor = self.experts(self.norm_feed(x_BTC))
        return x_BTC + fed_BTC


class GPT(nn.Module):
    """The language model. Its output is the logits of the next byte at every position."""

    def __init__(
        self, context: int, layers: int, width: int, heads: int, experts: int = 0, top_k: int = 2
    ) -> None:
        """`experts`: number of experts in each block, of which a token uses `top_k`; 0 for a dense model."""
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        blocks = [
            ExpertBlock(width, heads, experts, top_k) if experts else Block(width, heads)
            for _ in range(layers)
        ]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.apply(self._initialise)
        for block in blocks:
            # Scale down the weights of the residual branches, so that the residual stream does not grow with
            # depth (GPT-2).
            narrow = block.experts.narrow if isinstance(block, ExpertBlock) else block.narrow.weight
            for weight in (block.out.weight, narrow):
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5)
        self.head.weight = self.tokens.weight

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, Experts):
            nn.init.normal_(module.widen, std=0.02)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of shape [B, T, V]. T must not exceed `context`."""
        T = tokens_BT.shape[1]
        x_BTC = self.tokens(tokens_BT) + self.positions(torch.arange(T, device=tokens_BT.device))
        for block in self.blocks:
            x_BTC = block(x_BTC)
        return self.head(self.norm(x_BTC))  # type: ignore[no-any-return]

    @property
    def expert_layers(self) -> list[Experts]:
        """Return the experts of each block; empty for a dense model."""
        return [block.experts for block in self.blocks if isinstance(block, ExpertBlock)]

    @torch.no_grad()
    def write(self, prompt: bytes, length: int, generator: torch.Generator) -> bytes:
        """Return `length` bytes that the model generates after `prompt`."""
        device = self.tokens.weight.device
        tokens = list(prompt)
        for _ in range(length):
            window = torch.tensor([tokens[-self.context :]], device=device)
            odds = torch.softmax(self(window)[0, -1].float().cpu() / 0.8, dim=-1)
            tokens.append(int(torch.multinomial(odds, 1, generator=generator)))
        return bytes(tokens[len(prompt) :])
