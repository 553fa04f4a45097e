"""The bodies of requests below /v1/vectors, and their checks. Errors name the path of the wrong field."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon import spaces
from convoy_workloads.engines.aperon.columns import checked_records
from convoy_workloads.engines.aperon.commands import Query
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.filters import parse_filter
from convoy_workloads.engines.aperon.ids import Id, checked_ids
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon.settings import MAX_RESULTS, IndexSettings
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.serving.openai.requests import parse_body

_COLUMN = re.compile(r"(ids|vectors|metadata)\[(\d+)\]")
_SINGULAR = {"ids": "id", "vectors": "vector", "metadata": "metadata"}
Rows = list[Any]
MOST_RESULTS = 200_000
"""Most results of a request, over all its queries. They bound the memory of a response."""
MOST_NUMBERS = 1 << 23
"""Most components of all vectors in a response."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SearchBody(_Body):
    """The body of `POST /v1/vectors/search`."""

    query: Any = None
    """One vector."""
    queries: Any = None
    """Several vectors: lists of numbers, or base64 of little-endian float32."""
    k: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    filter: dict[str, Any] | None = None
    nprobe: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    candidates: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    exact: bool = False
    include_metadata: bool = True
    include_vectors: bool = False


class RecordBody(_Body):
    """A record of an upsert."""

    id: Any
    vector: Any
    metadata: Any = None


class UpsertBody(_Body):
    """The body of `POST /v1/vectors/upsert`: columns, or records."""

    ids: Rows | None = None
    vectors: Any = None
    metadata: Rows | None = None
    records: list[RecordBody] | None = None


class DeleteBody(_Body):
    """The body of `POST /v1/vectors/delete`."""

    ids: Rows | None = None
    filter: dict[str, Any] | None = None


class GetBody(_Body):
    """The body of `POST /v1/vectors/get`."""

    ids: Rows
    include_metadata: bool = True
    include_vectors: bool = False


class CountBody(_Body):
    """The body of `POST /v1/vectors/count`."""

    filter: dict[str, Any] | None = None


B = TypeVar("B", bound=_Body)


def parse(kind: type[B], body: bytes) -> B:
    """Return the body of a request as an object of `kind`. Raises RequestError, with the path of the invalid
    field.
    """
    return parse_body(kind, body or b"{}")


def search(body: SearchBody, settings: IndexSettings, results: int, most: int) -> tuple[Floats, Query]:
    """Return the vectors and the query of a search. Raises InvalidInput, with the path of the invalid field.
    `results`: those of a query that names no number. `most`: queries of a request.
    """
    if (body.query is None) == (body.queries is None):
        raise InvalidInput("queries", "give either `query`, one vector, or `queries`, several")
    if body.query is not None:
        values = body.query if isinstance(body.query, str) else [body.query]
        name, found = "query", vectors("query", values, settings)
        if len(found) != 1:
            raise InvalidInput("query", f"{len(found)} vectors: send them as `queries`")
    else:
        name, found = "queries", vectors("queries", body.queries, settings)
    if not 1 <= len(found) <= most:
        raise InvalidInput(name, f"{len(found)} vectors are not between 1 and {most}")
    if body.filter is not None:
        parse_filter(body.filter, settings.fields)
    wanted = body.k or results
    count = check_results("k", len(found), wanted)
    if body.include_vectors:
        check_numbers("include_vectors", count, settings.dimension, "results")
    query = Query(
        wanted,
        body.filter,
        body.nprobe,
        body.candidates,
        body.exact,
        body.include_metadata,
        body.include_vectors,
    )
    return found, query


def check_results(name: str, queries: int, results: int) -> int:
    """Return the number of results of all queries. Raises InvalidInput if a response cannot have so many."""
    if queries * results > MOST_RESULTS:
        raise InvalidInput(
            name,
            f"{queries} queries with {results} results each are more than {MOST_RESULTS}: ask for less",
        )
    return queries * results


def check_numbers(name: str, count: int, dimension: int, what: str) -> None:
    """Raise InvalidInput if a response cannot have so many vectors."""
    if count * dimension > MOST_NUMBERS:
        raise InvalidInput(
            name,
            f"{count} {what} of dimension {dimension} are more than {MOST_NUMBERS} numbers: ask for less",
        )


def upsert(body: UpsertBody, settings: IndexSettings, most: int) -> Upsert:
    """Return the checked records of an upsert. Raises InvalidInput, with the path of the invalid field."""
    if body.records is None:
        return _upsert(body.ids, body.vectors, body.metadata, settings, most)
    if not (body.ids is None and body.vectors is None and body.metadata is None):
        raise InvalidInput("records", "give either `records`, or `ids` and `vectors`")
    ids = [one.id for one in body.records]
    rows, metadata = [one.vector for one in body.records], [one.metadata for one in body.records]
    try:
        return _upsert(ids, rows, metadata, settings, most)
    except InvalidInput as error:
        raise InvalidInput(_of_records(error.field), _of_records(error.problem)) from error


def _of_records(path: str) -> str:
    """Return a path in `records` for one in the columns."""
    found = _COLUMN.sub(lambda match: f"records[{match[2]}].{_SINGULAR[match[1]]}", path)
    return "records" if found in _SINGULAR else found


def _upsert(
    ids: Rows | None, values: Any, metadata: Rows | None, settings: IndexSettings, most: int
) -> Upsert:
    if ids is None or values is None:
        raise InvalidInput("ids" if ids is None else "vectors", "missing")
    checked = checked_ids("ids", ids, settings.id_type)
    if not 1 <= len(checked) <= most:
        raise InvalidInput("ids", f"{len(checked)} records are not between 1 and {most}")
    found = vectors("vectors", values, settings)
    if len(found) != len(checked):
        raise InvalidInput("vectors", f"{len(found)} vectors for {len(checked)} ids")
    return Upsert(checked, found, checked_records("metadata", metadata, len(checked), settings.fields))


def ids_of(ids: Rows, settings: IndexSettings, most: int) -> list[Id]:
    """Return checked ids. Raises InvalidInput, with the path of the invalid field."""
    found = checked_ids("ids", ids, settings.id_type)
    if not 1 <= len(found) <= most:
        raise InvalidInput("ids", f"{len(found)} ids are not between 1 and {most}")
    return found


def get(body: GetBody, settings: IndexSettings, most: int) -> list[Id]:
    """Return the checked ids of a body. Raises InvalidInput, with the path of the invalid field."""
    found = ids_of(body.ids, settings, most)
    if body.include_vectors:
        check_numbers("include_vectors", len(found), settings.dimension, "records")
    return found


def vectors(name: str, values: Any, settings: IndexSettings) -> Floats:
    """Return vectors of a body as they are stored and searched. Raises InvalidInput, with the path of the
    invalid field.
    """
    if isinstance(values, str):
        values = _from_base64(name, values, settings.dimension)
    elif not isinstance(values, list):
        raise InvalidInput(name, "no list of vectors, and no base64")
    elif not values:
        raise InvalidInput(name, "0 vectors")
    else:
        _check_numbers(name, values)
    found = spaces.checked_vectors(name, values, settings.dimension, settings.metric)
    return found


def _check_numbers(name: str, values: Rows) -> None:
    """Raise InvalidInput if there is a value that numpy would read as a number, but is none."""
    for at, row in enumerate(values):
        if not isinstance(row, list):
            raise InvalidInput(f"{name}[{at}]", "no list of numbers")
        kinds = set(map(type, row))
        if not kinds <= {int, float}:
            wrong = next(place for place, one in enumerate(row) if type(one) not in (int, float))
            raise InvalidInput(f"{name}[{at}][{wrong}]", f"{shown(row[wrong])} is no number")


def _from_base64(name: str, text: str, dimension: int) -> Floats:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(name, "a text that is no base64") from error
    if not data or len(data) % (4 * dimension):
        raise InvalidInput(name, f"{len(data)} bytes are no float32 vectors of dimension {dimension}")
    return np.frombuffer(data, "<f4").reshape(-1, dimension).astype(np.float32)
