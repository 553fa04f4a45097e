"""Parameters of the engine aperon. `python -m convoy_workloads.engines.aperon.params` prints their JSON
Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

FIELD_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"


class IndexParams(BaseModel):
    """The index and its searches."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    metric: Literal["l2", "ip", "cosine"] = "l2"
    """Distance of vectors: `l2`, the squared Euclidean distance; `ip`, the negative inner product; `cosine`,
    1 minus the cosine.
    """
    grains: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of grains of a segment; 0 for one for each 1000 vectors."""
    dims: Annotated[int, Field(ge=0, le=64, multiple_of=4)] = 0
    """Number of local coordinates; 0 to choose it by the variance that they keep."""
    nprobe: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    """Number of grains of each segment that a query scans, until the search is tuned."""
    candidates: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    """Number of candidates of each segment whose exact distances are computed, until the search is tuned."""
    target_recall: Annotated[float, Field(ge=0, le=1)] = 0.98
    """Recall to which `nprobe` and `candidates` are tuned on sampled queries; 0 to keep them."""


class Params(BaseModel):
    """An index of vectors with metadata."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = "aperon"
    """Name of the index in the path of inferences, and in metrics."""
    dimension: Annotated[int, Field(ge=0, le=16_384)] = 0
    """Number of components of a vector; 0 for that of the snapshot in spec.model."""
    id_type: Literal["string", "uint64"] = "string"
    """Type of ids. JSON readers may lose digits of numbers above 2^53."""
    fields: Annotated[
        dict[Annotated[str, Field(pattern=FIELD_NAME)], Literal["keyword", "integer", "float", "boolean"]],
        Field(max_length=64),
    ] = {}
    """Types of the metadata fields, by name. Records and filters may use no others."""
    index: IndexParams = IndexParams()
    state: Annotated[str, Field(max_length=1024)] = ""
    """Folder for the files of the index. Empty for a folder of the pod, which lasts as long as the pod. For a
    longer life, mount a volume of each pod and set its path.
    """
    fsync: Literal["always", "interval", "never"] = "always"
    """`always`: a write is acknowledged when it is on the disk; writes that wait share a flush. `interval`:
    at most `fsync_seconds` later it is on the disk. `never`: the system decides. With each of them, the death
    of the process loses nothing.
    """
    fsync_seconds: Annotated[float, Field(gt=0, le=3600)] = 1.0
    """Longest time until a write is on the disk, with `fsync: interval`."""
    copies: Annotated[int, Field(ge=0, le=8)] | None = None
    """Number of other replicas that must have a write in memory before it is acknowledged: null for one, if
    there are others that have caught up; 0 for the log of its replica alone.
    """
    read_only: bool = False
    """Serve the snapshot in spec.model as it is, and refuse writes. Another snapshot in spec.model then
    replaces the index. Without this, spec.model is only the start of an index that takes writes.
    """
    max_records: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Maximum number of records in a replica; 0 for no limit. Further writes get status 507."""
    memory_mib: Annotated[int, Field(ge=0, le=2**24)] = 0
    """Maximum size of the index in MiB; 0 for no limit. Further writes get status 507."""
    flush_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 2048
    """Number of records in memory that become a segment. They are searched exactly."""
    threads: Annotated[int, Field(ge=0, le=256)] = 1
    """Number of threads of a search; 0 for as many as the pod's CPU limit allows."""
    kernel: Literal["auto", "avx512vnni", "avx2", "twin"] = "auto"
    """Instruction set of the scan: `auto` for the fastest that this machine has; `twin` for the slow form
    without compiled code.
    """
    recall_share: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of queries that are compared with exact results."""
    recall_budget: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Share of the time that these comparisons may take."""
    results: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Number of results of a query that names none."""
    batch_rows: Annotated[int, Field(ge=1, le=4096)] = 64
    """Maximum number of queries that are searched together. A request with more is searched in parts."""
    max_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Maximum number of queries or records of a request."""
    write_queue: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Number of writes that may wait. Further writes get status 429."""
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = 256
    """Number of searches that may wait. Further searches get status 429."""
    request_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Longest time for a request. The header `X-Request-Timeout` may shorten it."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """Maximum size of a request's body."""

    @model_validator(mode="after")
    def _consistent(self) -> Params:
        if ".." in self.state.split("/"):
            raise ValueError("state: '..' is no folder of a state")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
