"""The check of the bearer token."""

from __future__ import annotations

import contextlib
import hmac
from pathlib import Path

from convoy_workloads.runtime.errors import ParamsError

MAX_TOKEN = 4096
"""Maximum number of bytes of the token file."""


class TokenFile:
    """The token in a file. The file is read again when it has changed, as a mounted Secret does when the
    Secret is updated.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ParamsError if it has no usable token."""
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._token = b""
        try:
            self._read()
        except OSError as error:
            raise ParamsError(f"the token file {path} cannot be read: {error.strerror}") from error
        if not self._token:
            raise ParamsError(f"the token file {path} must hold 1 to {MAX_TOKEN} bytes")

    @property
    def header(self) -> str:
        """Return the value of the header `Authorization` for a request to another replica of the job."""
        with contextlib.suppress(OSError):
            self._read()
        return f"Bearer {self._token.decode('latin-1')}"

    def accepts(self, authorization: bytes) -> bool:
        """Return True if the value of the header `Authorization` has the token. The time that the comparison
        takes does not depend on the value.
        """
        with contextlib.suppress(
            OSError
        ):  # The kubelet is replacing the file: the previous token stays valid.
            self._read()
        scheme, _, token = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    def _read(self) -> None:
        status = self._path.stat()
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if version == self._version:
            return
        with self._path.open("rb") as file:
            token = file.read(MAX_TOKEN + 1).strip()
        if 0 < len(token) <= MAX_TOKEN:
            self._token, self._version = token, version
