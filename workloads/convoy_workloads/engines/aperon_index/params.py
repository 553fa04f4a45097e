"""Parameters of the engine aperon-index. `python -m convoy_workloads.engines.aperon_index.params` prints
their JSON Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from convoy_workloads.engines.aperon.params import FIELD_NAME, IndexParams


class VectorFiles(BaseModel):
    """Vectors in the files of a folder."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    folder: Annotated[str, Field(min_length=1, max_length=1024)]
    """Folder of a mounted volume, with `vectors.npy` (float32, one row for each vector), perhaps `ids.txt`
    (an id in each line) or `ids.npy`, and perhaps `metadata.jsonl` (an object in each line). Without ids,
    the numbers of the rows are the ids.
    """


class Service(BaseModel):
    """The records of a ServingJob of aperon."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: Annotated[str, Field(pattern=r"^https?://[^/?#@]+$", max_length=1024)]
    """Address of the service, such as `http://aperon:8080`. All its records are read, as they are at one
    time.
    """
    token_file: Annotated[str, Field(max_length=1024)] = ""
    """File with the service's token; empty if it needs none."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Number of attempts to read the records, with growing pauses of up to 30 seconds between them."""

    @field_validator("url")
    @classmethod
    def _has_a_port(cls, url: str) -> str:
        if urlsplit(url).port == 0 or not urlsplit(url).hostname:  # Reading a wrong port raises ValueError.
            raise ValueError(f"{url!r} is no address of a service")
        return url


class Synthetic(BaseModel):
    """Random vectors around random centres."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    rows: Annotated[int, Field(ge=1, le=100_000_000)] = 10_000
    """Number of vectors."""
    growth: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Number of vectors that each further generation has more."""
    dimension: Annotated[int, Field(ge=1, le=16_384)] = 64
    """Number of components of a vector."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Random seed. A row is the same in all generations."""


class Params(BaseModel):
    """One or more builds of an index."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    vectors: VectorFiles | None = None
    """Source of the records: files. Set one of `vectors`, `service` and `synthetic`."""
    service: Service | None = None
    """Source of the records: a running service."""
    synthetic: Synthetic | None = None
    """Source of the records: random numbers, to try the engine."""
    generations: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """Number of builds. Each reads its source anew and is saved as a checkpoint of its own; 0 to build
    without end.
    """
    every_seconds: Annotated[float, Field(ge=0, le=31_536_000)] = 3600.0
    """Seconds from the start of a build to the start of the next one."""
    dimension: Annotated[int, Field(ge=0, le=16_384)] = 0
    """Number of components of a vector; 0 for that of the source."""
    id_type: Literal["string", "uint64"] = "string"
    """Type of ids. JSON readers may lose digits of numbers above 2^53. A service has its own."""
    fields: Annotated[
        dict[Annotated[str, Field(pattern=FIELD_NAME)], Literal["keyword", "integer", "float", "boolean"]],
        Field(max_length=64),
    ] = {}
    """Types of the metadata fields, by name. A service has its own."""
    index: IndexParams = IndexParams()
    """The index and its searches. A service has its own metric. `nprobe` and `candidates` are tuned to
    `target_recall` on sampled records.
    """
    segment_rows: Annotated[int, Field(ge=1000, le=100_000_000)] = 500_000
    """Number of records of a segment. More make searches faster; a build needs memory for about four times
    the vectors of a segment.
    """
    threads: Annotated[int, Field(ge=0, le=256)] = 0
    """Number of threads of searches while the index is tuned; 0 for as many as the pod's CPU limit allows."""
    kernel: Literal["auto", "avx512vnni", "avx2", "twin"] = "auto"
    """Instruction set, see the engine aperon."""
    folder: Annotated[str, Field(max_length=1024)] = ""
    """Folder of this job alone in which indexes are built, with room for three of them. Empty for a folder of
    the pod.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Params:
        given = [name for name in ("vectors", "service", "synthetic") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"{' and '.join(given)} are set" if given else "none is set"
            raise ValueError(f"set exactly one of vectors, service and synthetic: {found}")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
