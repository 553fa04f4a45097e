"""Quantises a model with weights in floats."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from convoy_workloads.engines.tilefuse import blueprint, calibration, groups
from convoy_workloads.engines.tilefuse.groups import SCHEMES, Codes
from convoy_workloads.engines.tilefuse.packed_folder import Content
from convoy_workloads.engines.tilefuse.search import Outcome, Progress, Settings, search
from convoy_workloads.engines.tilefuse.structure import Matrix, Model, structure
from convoy_workloads.serving.protocol import Tokenizer


@dataclass(frozen=True)
class Request:
    """The wanted quantisation."""

    scheme: str
    group_size: int
    samples: int
    """Number of texts for the search of scales; 0 to round to nearest."""
    clip: bool
    dtype: torch.dtype
    """Type of the embedding and the head."""


def quantise(
    model: Model, tokenizer: Tokenizer, wanted: Request, progress: Progress
) -> tuple[Content, list[Outcome]]:
    """Return the quantised model, and the outcome of the search for each matrix. The model's weights, in
    float32, are changed in place.

    The same weights, text and number of threads give the same codes. Raises ModelError, with the tensor, if
    a matrix cannot be quantised.
    """
    bits = SCHEMES[wanted.scheme]
    outcomes, shrinks = list[Outcome](), dict[str, Tensor]()
    found = structure(model)
    for matrix in found.matrices:
        for name, part in _parts(matrix):
            groups.check(name, part, wanted.group_size)
    if wanted.samples:
        tokens = calibration.calibration(tokenizer, wanted.samples, model.shape.context)
        settings = Settings(bits, wanted.group_size, wanted.clip)
        outcomes, shrinks = search(model, found, tokens, settings, progress)

    def codes(matrix: Matrix) -> Codes:
        weight = matrix.module.weight
        assert isinstance(weight, Tensor)  # noqa: S101 - the type of modules' attributes is not known
        share = shrinks.get(matrix.key, 1.0)
        return groups.quantise(matrix.key, weight.detach(), bits, wanted.group_size, share)

    content = Content(model, blueprint.of_model(model), codes, wanted.scheme, wanted.group_size, wanted.dtype)
    return content, outcomes


def _parts(matrix: Matrix) -> list[tuple[str, Tensor]]:
    """Return the part of the weights that each name in files stands for."""
    module = matrix.module
    assert isinstance(module, nn.Linear)  # noqa: S101 - the model is not yet quantised
    parts = torch.split(module.weight.detach(), [outputs for _, outputs in matrix.parts])
    return [(f"{name}.weight", part) for (name, _), part in zip(matrix.parts, parts, strict=True)]
