"""Checks parameters with the model of their engine, which knows more than its JSON schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from convoy_workloads.engines.entry import EngineEntry
from convoy_workloads.engines.registry import ENGINES


def model_error(name: str, params: Mapping[str, Any], entries: Sequence[EngineEntry] = ENGINES) -> str | None:
    """Return what is wrong with the parameters of the engine `name`: for example that two of them do not go
    together. Return None if nothing is wrong, or if no such engine comes with Convoy.
    """
    entry = next((one for one in entries if one.name == name), None)
    if entry is None:
        return None
    try:
        entry.module("params").Params.model_validate(params)
    except ValidationError as error:
        return "; ".join(_text(one["loc"], one["msg"]) for one in error.errors())
    return None


def _text(place: tuple[int | str, ...], message: str) -> str:
    field = ".".join(map(str, place))
    return f"{field}{': ' if field else ''}{message.removeprefix('Value error, ')}"
