"""The data of an Experiment in the form in which they pass to the analysis.

The parameters of a job have a limit of 128 KiB. So the blocks have a short form, which leaves out what
follows from the plan: names of arms and outcomes, conditions, repetitions and the order of the arms. And all
data together are compressed.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_schedule import Block, schedule
from convoy_crds.experiment_status import (
    MAX_BLOCKS,
    MAX_FIGURES,
    Achieved,
    BlockStatus,
    Figure,
    RunFailure,
)
from convoy_crds.meta import Model

Place = Annotated[int, Field(ge=0, lt=MAX_FIGURES)]
"""Number of an arm or of an outcome in the plan, from 0. A sweep's block has one row, with the number 0."""


MAX_BYTES = 4 * 1024 * 1024
"""Maximum size of all data as JSON before they are compressed."""


class DataMismatch(ValueError):
    """The blocks cannot come from the plan."""


class PackedBlock(Model):
    """A block in the short form."""

    id: Annotated[int, Field(ge=0, lt=MAX_BLOCKS)]
    seed: int
    values: Annotated[
        list[Annotated[list[float | None], Field(max_length=MAX_FIGURES)]], Field(max_length=MAX_FIGURES)
    ]
    """For each arm of the plan, the values of the outcomes of the plan; null for a value that is missing."""
    censored: list[tuple[Place, Place]] | None = None
    """Arm and outcome of each censored value."""
    failures: list[tuple[Place, str, str]] | None = None
    """Arm, reason and message of each failed run."""
    achieved: list[tuple[Place, float]] | None = None
    """Arm and measured magnitude of each perturbation."""
    start: int | float | None = None
    """Unix time in seconds at which the first run started."""
    end: int | float | None = None
    """Unix time in seconds at which the last run ended."""


NOT_REGISTERED = "NotRegistered"
"""Reason of the deviation of an experiment that ran without a cluster."""


class Deviation(Model):
    """A deviation from the plan that the operator has seen."""

    reason: Annotated[str, Field(max_length=64)]
    """Reason of the condition that shows the deviation."""
    message: Annotated[str, Field(max_length=1024)]

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class ExperimentData(Model):
    """All data that the analysis gets besides the plan."""

    blocks: Annotated[list[PackedBlock], Field(max_length=MAX_BLOCKS)] = Field(default_factory=list)
    """The ended blocks in the short form."""
    tuning: Annotated[list[dict[str, Any]], Field(max_length=16)] = Field(default_factory=list)
    """Rows of the Experiment's `status.tuning`."""
    deviations: Annotated[list[Deviation], Field(max_length=16)] = Field(default_factory=list)
    """Deviations from the plan that the operator has seen."""


def compressed(data: ExperimentData) -> str:
    """Return the data as text: base64 of zlib of JSON."""
    text = json.dumps(data.to_dict(), separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def decompressed(text: str) -> ExperimentData:
    """Return the data in a text. Raises ValueError if it is malformed, or larger than MAX_BYTES."""
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.b64decode(text, validate=True), MAX_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the data are not base64 of zlib: {error}") from error
    if not reader.eof:
        raise ValueError(f"the data are incomplete, or have more than {MAX_BYTES} bytes")
    return ExperimentData.model_validate_json(content)


def pack(spec: ExperimentSpec, blocks: Sequence[BlockStatus]) -> list[PackedBlock]:
    """Return the short form of blocks. Raises DataMismatch if they do not belong to the plan."""
    planned = {one.id: one for one in schedule(spec)}
    return [_packed(spec, _planned(planned, one.id), one) for one in blocks]


def unpack(spec: ExperimentSpec, blocks: Sequence[PackedBlock]) -> list[BlockStatus]:
    """Return the blocks of a short form. Raises DataMismatch if they do not belong to the plan."""
    planned = {one.id: one for one in schedule(spec)}
    return [_unpacked(spec, _planned(planned, one.id), one) for one in blocks]


def _planned(planned: dict[int, Block], number: int) -> Block:
    if number not in planned:
        raise DataMismatch(f"block {number}: the plan has no such block")
    return planned[number]


def _labels(spec: ExperimentSpec, planned: Block) -> list[str]:
    return [arm.name for arm in spec.arms] if planned.combination is None else list(planned.labels)


def _packed(spec: ExperimentSpec, planned: Block, block: BlockStatus) -> PackedBlock:
    labels, outcomes = _labels(spec, planned), [one.name for one in spec.outcomes]
    places = {label: number for number, label in enumerate(labels)}
    values: list[list[float | None]] = [[None] * len(outcomes) for _ in labels]
    censored = []
    try:
        for one in block.figures:
            place = places[one.arm], outcomes.index(one.outcome)
            values[place[0]][place[1]] = one.value
            if one.censored:
                censored.append(place)
        return PackedBlock(
            id=block.id,
            seed=block.seed,
            values=values,
            censored=censored or None,
            failures=[(places[one.arm], one.reason, one.message) for one in block.failures] or None,
            achieved=[(places[one.arm], one.magnitude) for one in block.achieved] or None,
            start=_seconds(block.start_time),
            end=_seconds(block.completion_time),
        )
    except (KeyError, ValueError) as error:
        raise DataMismatch(f"block {block.id}: it does not belong to the plan: {error}") from error


def _seconds(time: datetime | None) -> float | None:
    if time is None:
        return None
    seconds = time.timestamp()
    return int(seconds) if seconds.is_integer() else seconds


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _unpacked(spec: ExperimentSpec, planned: Block, block: PackedBlock) -> BlockStatus:
    labels, outcomes = _labels(spec, planned), [one.name for one in spec.outcomes]
    if len(block.values) != len(labels) or any(len(row) != len(outcomes) for row in block.values):
        raise DataMismatch(
            f"block {block.id}: values must have {len(labels)} rows of {len(outcomes)} values, one row for "
            "each arm and one value for each outcome of the plan"
        )
    places = {label: number for number, label in enumerate(labels)}
    marked = set(block.censored or ())
    try:
        return BlockStatus(
            id=block.id,
            perturbation=planned.cell.perturbation,
            magnitude=planned.cell.magnitude,
            repetition=planned.repetition,
            seed=block.seed,
            arms=list(planned.labels),
            figures=[
                Figure(
                    arm=label, outcome=outcome, value=value, censored=(places[label], at) in marked or None
                )
                for label in planned.labels
                for at, outcome in enumerate(outcomes)
                if (value := block.values[places[label]][at]) is not None
            ],
            failures=[
                RunFailure(arm=labels[place], reason=reason, message=message)
                for place, reason, message in block.failures or ()
            ],
            achieved=[
                Achieved(arm=labels[place], magnitude=magnitude) for place, magnitude in block.achieved or ()
            ],
            start_time=_time(block.start),
            completion_time=_time(block.end),
        )
    except IndexError as error:
        raise DataMismatch(f"block {block.id}: the plan has only {len(labels)} arms") from error
