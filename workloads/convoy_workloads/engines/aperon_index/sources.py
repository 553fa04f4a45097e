"""The choice of the source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from convoy_workloads.engines.aperon_index import service_records, synthetic, vector_files
from convoy_workloads.engines.aperon_index.params import Params
from convoy_workloads.engines.aperon_index.source import Records


@contextlib.contextmanager
def opened(params: Params, generation: int) -> Iterator[Records]:
    """Open the source of a generation. Raises SourceError for wrong records or settings, and SourceAway if
    the source cannot be read now.
    """
    if params.vectors is not None:
        yield vector_files.read(params, params.vectors.folder)
    elif params.service is not None:
        with service_records.read(params, params.service) as found:
            yield found
    elif params.synthetic is not None:
        yield synthetic.read(params, params.synthetic, generation)
