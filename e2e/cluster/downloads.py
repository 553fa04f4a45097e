"""Downloads a file and checks its published SHA-256 digest."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.errors import ClusterError


def reachable(address: str, *, deadline: float = 4.0) -> bool:
    """Return True if the host of a web address accepts connections. Returns fast if there is no internet
    access.
    """
    host = urllib.parse.urlsplit(address).hostname or ""
    try:
        socket.create_connection((host, 443), timeout=deadline).close()
    except OSError:
        return False
    return True


def fetch(address: str, *, deadline: float = 120.0) -> bytes:
    """Return the content of an https address. `deadline` limits each wait for data, in seconds.

    Raises ClusterError if the download fails.
    """
    try:
        with urllib.request.urlopen(address, timeout=deadline) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        raise ClusterError(f"{address}: {error}") from None


def listed_digest(sums: str, file: str) -> str:
    """Return the digest of `file` in the text `sums`: lines of `digest  name`, or one digest without a
    name.
    """
    lines = [line.split() for line in sums.splitlines() if line.strip()]
    for words in lines:
        if len(words) == 2 and words[1].lstrip("*").rsplit("/", 1)[-1] == file:
            return words[0].lower()
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0].lower()
    raise ClusterError(f"the published checksums do not list {file}")


def fetch_checked(address: str, sums: str) -> bytes:
    """Return the content of `address`. Its digest must be the one in the checksum file at the address
    `sums`.
    """
    name = address.rsplit("/", 1)[-1]
    wanted = listed_digest(fetch(sums).decode(), name)
    content = fetch(address)
    got = hashlib.sha256(content).hexdigest()
    if got != wanted:
        raise ClusterError(
            f"{address}: SHA-256 is {got}, but the published digest is {wanted}; nothing was installed"
        )
    return content


def unpack_programs(archive: bytes, programs: Collection[str], folder: Path) -> None:
    """Write the named programs of a .tar.gz into `folder`. The archive may have them in any folder."""
    missing = set(programs)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            name = member.name.rsplit("/", 1)[-1]
            if name in missing and member.isfile() and (content := tar.extractfile(member)):
                files.write(folder / name, content.read(), mode=0o755)
                missing.remove(name)
    if missing:
        raise ClusterError(f"the archive lacks {', '.join(sorted(missing))}")
