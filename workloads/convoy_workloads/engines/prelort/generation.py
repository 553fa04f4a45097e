"""ROUGE-L of a language model's continuations of held-out text."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from convoy_workloads.engines.prelort.rouge import rouge_l
from convoy_workloads.engines.prelort.text import CONTEXT, Text

PROMPTS = 24
PROMPT_BYTES = 48
REFERENCE_BYTES = 64


@torch.no_grad()
def generated_score(model: nn.Module, text: Text, prompts: int = PROMPTS) -> float:
    """Return the mean ROUGE-L of the most likely continuations of `prompts` windows of `text`."""
    spacing = (len(text) - PROMPT_BYTES - REFERENCE_BYTES) // prompts
    starts = np.arange(prompts) * spacing
    first = torch.from_numpy(np.stack([text[one : one + PROMPT_BYTES] for one in starts]).astype(np.int64))
    tokens: Tensor = first
    for _ in range(REFERENCE_BYTES):
        following = model(tokens[:, -CONTEXT:])[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
    scores = []
    for start, row in zip(starts, tokens[:, PROMPT_BYTES:].tolist(), strict=True):
        end = start + PROMPT_BYTES
        reference = text[end : end + REFERENCE_BYTES].tobytes().decode("utf-8", "replace")
        scores.append(rouge_l(reference, bytes(row).decode("utf-8", "replace")))
    return float(np.mean(scores))
