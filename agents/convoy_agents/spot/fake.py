"""The source for tests: the EC2 client against another address, or a file in the same form."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote, urlsplit

from convoy_agents.spot.aws import Ec2Metadata, interruption
from convoy_agents.spot.endpoint import MAX_BODY, Endpoint, Reply
from convoy_agents.spot.source import Finding, NoticeSource, SourceError


class NoticeFile:
    """A file with the reply of `spot/instance-action`. Without the file there is no notice."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def poll(self) -> tuple[Finding, ...]:
        """Return the interruption in the file. Raises SourceError if it cannot be read or is invalid."""
        try:
            body = await asyncio.to_thread(self._read)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise SourceError(f"{self._path}: {error.strerror}") from error
        return (interruption(Reply(200, {}, body)),)

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(MAX_BODY)


def fake_source(address: str, node: str) -> NoticeSource:
    """Return the source at `file:///PATH`, or at `http://HOST:PORT/PREFIX`. The name of the node follows the
    prefix, so that one server serves many nodes. Raises ValueError for another address.
    """
    parts = urlsplit(address)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return NoticeFile(Path(parts.path))
    if parts.scheme == "http" and parts.hostname:
        prefix = f"{parts.path.rstrip('/')}/{quote(node)}"
        return Ec2Metadata(Endpoint(parts.hostname, parts.port or 80, prefix))
    raise ValueError(f"{address!r} is neither file:///PATH nor http://HOST:PORT/PREFIX")
