"""Writes Chakra traces."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

from convoy_workloads.runtime.folder.storage import write_atomic
from convoy_workloads.traces.trace import Trace
from convoy_workloads.traces.wire.plain import varint


def encode(trace: Trace) -> bytes:
    """Return the uncompressed file of a trace. The same trace gives the same bytes."""
    out = io.BytesIO()
    for message in (trace.metadata, *trace.nodes):
        body = message.SerializeToString(deterministic=True)
        out.write(varint(len(body)))
        out.write(body)
    return out.getvalue()


def write(trace: Trace, path: Path) -> int:
    """Write a trace atomically. Compress the file if its name ends in `.gz`. Return its bytes.

    Raises OSError if the folder cannot be written.
    """
    data = encode(trace)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    write_atomic(path, data)
    return len(data)
