"""Advice: the rules that a job is checked against, their findings, and the facts of the run for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Model, StatusModel

MAX_FINDINGS = 16
"""Maximum number of findings in a status."""
MAX_FOLDERS = 4
"""Maximum number of data folders in the facts of a run."""
RuleId = Annotated[str, Field(pattern=r"^T(0[1-9]|1[0-2])$", max_length=3)]
"""Id of a rule of advice: `T01` to `T12`."""


class Severity(StrEnum):
    """Weight of a finding."""

    INFO = "Info"
    """The job runs well, but something could be better."""
    WARNING = "Warning"
    """The job wastes time or capacity, or its result cannot be trusted."""


class Enforce(StrEnum):
    """Consequence of a finding."""

    WARN = "Warn"
    """The status shows the findings. The job runs."""
    DENY = "Deny"
    """The job does not start while its spec violates a rule of severity Warning."""


class Lint(Model):
    """Rules of advice that the operator checks the job against. The page Advice lists them."""

    enforce: Enforce = Enforce.WARN
    """Consequence of a finding."""
    ignore: Annotated[
        list[RuleId], Field(max_length=12, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default=[])
    """Rules that are not checked, such as `T03`."""


class AdviceFinding(StatusModel):
    """A rule of advice that the job violates."""

    rule: str
    severity: Severity
    path: str
    """Field that the finding is about."""
    message: str
    remedy: str


class DataFolder(StatusModel):
    """A data volume of the pods, as the first rank saw it when it started."""

    path: str
    """Mount path."""
    files: int
    """Number of files that the rank counted, at most 20,000."""
    median_bytes: int
    """Median size of these files."""


class Usage(StatusModel):
    """Use of a resource by the pods that report it, together."""

    requested: float
    """Processors or accelerators that the pods request."""
    used: float
    """Average number in use."""
    seconds: int
    """Time over which the average was taken."""


class RunFacts(StatusModel):
    """Facts about the job's run that the rules of advice need."""

    data: Annotated[list[DataFolder], Field(max_length=MAX_FOLDERS)] = Field(default_factory=list)
    save_seconds: float | None = None
    """Longest time for which a save has stopped a rank. Absent before the first save."""
    copy_seconds: float | None = None
    """Longest time from a save until all its copies existed."""
    processors: Usage | None = None
    accelerators: Usage | None = None
