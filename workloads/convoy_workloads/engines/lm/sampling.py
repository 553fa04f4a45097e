"""The choice of the next token from logits.

The random number of a token depends only on the request's seed and on the token's place in the continuation.
Each row is computed alone. So a sampled continuation does not depend on the other sequences either.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from convoy_workloads.serving.protocol import Prompt, Sampling, Token

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def choose(prompt: Prompt, place: int, logits: Vector, reused: int | None) -> Token:
    """Return the next token. `place`: number of tokens generated before it. `reused`: see Token."""
    sampling = prompt.sampling
    if sampling.temperature == 0:
        token = int(np.argmax(logits))
    else:
        token = _draw(_weights(logits, sampling), uniform(sampling.seed, place))
    if sampling.logprobs is None:
        return Token(prompt.id, token, reused=reused)
    shifted = logits - logits.max()
    logprobs = shifted - np.log(np.exp(shifted).sum())
    best = np.argsort(-logprobs, kind="stable")[: sampling.logprobs]
    alternatives = tuple((int(one), float(logprobs[one])) for one in best)
    return Token(prompt.id, token, float(logprobs[token]), alternatives, reused)


def uniform(seed: int, place: int) -> float:
    """Return the random number in [0, 1) for a place of a continuation."""
    data = struct.pack("<Qq", seed % 2**64, place)
    return (int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 11) / 2**53


def _weights(logits: Vector, sampling: Sampling) -> Vector:
    """Return the unnormalised probabilities of the tokens that may be chosen; 0 for all others."""
    weights: Vector = np.exp((logits - logits.max()) / sampling.temperature)
    if not sampling.top_k and sampling.top_p >= 1:
        return weights
    order = np.argsort(-weights, kind="stable")
    kept = sampling.top_k or len(order)
    if sampling.top_p < 1:
        sums = np.cumsum(weights[order])
        # Keep the most likely tokens until their sum reaches top_p, including the one that reaches it.
        kept = min(kept, int(np.searchsorted(sums, sampling.top_p * sums[-1])) + 1)
    weights[order[kept:]] = 0.0
    return weights


def _draw(weights: Vector, random: float) -> int:
    """Return the index at which the running sum of the weights exceeds the share `random` of their sum."""
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, random * sums[-1], side="right"))
