"""The records of a running service of the engine aperon, by `GET /v1/vectors/export`."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon import exported
from convoy_workloads.engines.aperon.errors import AperonError
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.engines.aperon_index.params import Params, Service
from convoy_workloads.engines.aperon_index.source import Records, SourceAway, SourceError

PATH = "/v1/vectors/export"
STALL_SECONDS = 60.0
"""Longest time without a byte of the response."""
_REFUSED = frozenset({400, 401, 403, 404, 405})
"""Statuses that another attempt would get, too."""
_SHOWN = 300


@contextlib.contextmanager
def read(params: Params, service: Service) -> Iterator[Records]:
    """Open the export of a service. Raises SourceError, and SourceAway if another attempt may succeed."""
    connection = _connection(service.url)
    try:
        with _away(service.url):
            connection.request("GET", PATH, headers=_headers(service.token_file))
            response = connection.getresponse()
            if response.status != 200:
                text = response.read(_SHOWN).decode(errors="replace")
                why = f"{service.url}{PATH} responds with status {response.status}: {text}"
                raise SourceError(why) if response.status in _REFUSED else SourceAway(why)
            found = exported.read(response.read)
        yield Records(_settings(params, found.settings), _batches(service.url, found.batches), stored=True)
    finally:
        connection.close()


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=STALL_SECONDS, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=STALL_SECONDS)


def _headers(token_file: str) -> dict[str, str]:
    if not token_file:
        return {}
    try:
        token = Path(token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SourceError(f"service.token_file: {token_file}: {why}") from error
    return {"Authorization": f"Bearer {token}"}


@contextlib.contextmanager
def _away(url: str) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException, AperonError) as error:
        raise SourceAway(f"{url}: {error or type(error).__name__}") from error


def _batches(url: str, batches: Iterator[Upsert]) -> Iterator[Upsert]:
    while True:
        with _away(url):
            found = next(batches, None)
        if found is None:
            return
        yield found


def _settings(params: Params, found: IndexSettings) -> IndexSettings:
    """Return the settings of the service's index, with the form of the new one. Raises SourceError if a
    parameter says otherwise.
    """
    given = {
        "dimension": params.dimension or found.dimension,
        "id_type": params.id_type if "id_type" in params.model_fields_set else found.id_type,
        "fields": dict(params.fields if "fields" in params.model_fields_set else found.fields),
        "index.metric": params.index.metric if "metric" in params.index.model_fields_set else found.metric,
    }
    theirs = {**found.as_json(), "index.metric": found.metric}
    for name, value in given.items():
        if value != theirs[name]:
            raise SourceError(
                f"{name}: {shown(value)}, but the service has {shown(theirs[name])}: leave it out"
            )
    index = params.index
    return IndexSettings(found.dimension, found.metric, found.id_type, found.fields, index.grains, index.dims)
