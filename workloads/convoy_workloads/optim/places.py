"""The names of the nine places of `precision.Precision`. This module needs no torch, so descriptions of
parameters can use it.
"""

from __future__ import annotations

PLACES = (
    "data",
    "gram_input",
    "gram_accumulation",
    "margin",
    "communication",
    "recurrence",
    "residual",
    "update",
    "weight",
)
