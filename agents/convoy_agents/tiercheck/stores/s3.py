"""Blobs in a bucket of an S3 API, through boto3. Import this module only for such a store, because boto3 is
large.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import threading
import time
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from errno import ENOSPC
from functools import cache
from typing import Any, Literal

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError, SSLError

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.blobs import MAX_TEXT, Listing
from convoy_agents.tiercheck.stores.errors import StoreError

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
_BUSY = "the store is busy or down; Convoy tries again"
_KEYS = "the access key is wrong; correct the Secret of the CheckpointStore"
_EXPIRED = "the credentials have expired; renew the Secret of the CheckpointStore"
_FULL = "the store is full; make room there or keep fewer generations"
_ADVICE: Mapping[str, tuple[str, bool]] = {
    "AccessDenied": (
        "the credentials lack permissions; grant s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject",
        False,
    ),
    "BadDigest": ("the bytes were damaged in transit; Convoy sends them again", True),
    "ConditionalRequestConflict": ("another client writes the same object; Convoy tries again", True),
    "ExpiredToken": (_EXPIRED, False),
    "InsufficientStorage": (_FULL, False),
    "InvalidAccessKeyId": (_KEYS, False),
    "InvalidToken": (_EXPIRED, False),
    "NoSuchBucket": ("there is no such bucket; create it or correct the CheckpointStore", False),
    "NotImplemented": ("the store does not support this operation; use another store", False),
    "QuotaExceeded": (_FULL, False),
    "RequestTimeTooSkewed": ("this node's clock is wrong; set it", False),
    "RequestTimeout": (_BUSY, True),
    "SignatureDoesNotMatch": (_KEYS, False),
    "SlowDown": (_BUSY, True),
    "TokenRefreshRequired": (_EXPIRED, False),
    "XAmzContentChecksumMismatch": ("the bytes were damaged in transit; Convoy sends them again", True),
    "XMinioStorageFull": (_FULL, False),
}
_CANNOT = frozenset({400, 405, 501})


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a store. Their `repr` does not show them."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The location of a store: a bucket of an S3 API, or only those keys of the bucket that start with a
    prefix.
    """

    name: str
    endpoint_url: str = ""
    """URL of the API; empty for AWS."""
    region: str = "us-east-1"
    prefix: str = ""
    addressing: Literal["auto", "path", "virtual"] = "auto"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Limits of the boto3 client, and the kind of checksum that it sends with each body."""

    checksum: Literal["crc32", "md5"] = "crc32"
    ca_file: str = ""
    """File of the CA that signed the endpoint's certificate; empty to use the system's CAs."""
    attempts: int = 2
    """Maximum attempts of boto3 for one operation, including the first."""
    connections: int = 32
    connect_seconds: float = CONNECT_SECONDS
    read_seconds: float = READ_SECONDS


_connecting = threading.Lock()
"""Lock for creating clients. A boto3 session must create only one client at a time."""


@cache
def _session() -> boto3.session.Session:
    """Return the boto3 session that all clients share. A session takes 12 MiB and 0.1 s to read the
    description of S3.
    """
    return boto3.session.Session()


class S3:
    """Blobs in one bucket, or only those with a prefix."""

    def __init__(
        self,
        bucket: Bucket,
        credentials: Credentials,
        settings: ClientSettings = ClientSettings(),
    ) -> None:
        endpoint = bucket.endpoint_url
        self._bucket = bucket.name
        self._prefix = "".join(f"{part}/" for part in bucket.prefix.split("/") if part)
        self._checksum = settings.checksum
        self._where = f"bucket {bucket.name} at {endpoint or 'AWS'}"
        self._endpoint, self._region, self._ca_file = endpoint, bucket.region, settings.ca_file
        self._config = Config(
            signature_version="s3v4",
            connect_timeout=settings.connect_seconds,
            read_timeout=settings.read_seconds,
            max_pool_connections=settings.connections,
            retries={"mode": "standard", "total_max_attempts": settings.attempts},
            # Over TLS the bytes are protected already, and a SHA-256 of them would be slower than the
            # network.
            s3={
                "addressing_style": bucket.addressing,
                "payload_signing_enabled": endpoint.startswith("http:"),
            },
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            tcp_keepalive=True,
        )
        self._client = self._connect(credentials)

    def renew(self, credentials: Credentials) -> None:
        """Use these credentials for all further calls. Running calls keep the old ones."""
        self._client = self._connect(credentials)

    @property
    def where(self) -> str:
        """The location of the store, for messages."""
        return self._where

    def put(self, key: str, data: digest.Buffer) -> None:
        """See `Blobs.put`."""
        body = bytes(data)
        with self._store_errors("put", key):
            self._put(key, body, body)

    def create(self, key: str, data: digest.Buffer) -> bool:
        """See `Blobs.create`. This works only if the store supports If-None-Match."""
        body = bytes(data)
        with self._store_errors("create", key):
            try:
                self._put(key, body, body, IfNoneMatch="*")
            except ClientError as error:
                if _code(error) in {"PreconditionFailed", "412"}:
                    return False
                raise
        return True

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """See `Blobs.get`."""
        part = {"Range": f"bytes={span[0]}-{span[0] + span[1] - 1}"} if span else {}
        with self._store_errors("get", key):
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, **part)
            except ClientError as error:
                if _code(error) in {"NoSuchKey", "404"}:
                    return None
                raise
            with contextlib.closing(found["Body"]) as body:
                # botocore detects a truncated body only if `read` is called without a size.
                whole = found.get("ContentLength", limit + 1) <= limit
                return bytes(body.read() if whole else body.read(limit))

    def names(
        self, folder: str, alive: Callable[[], None] = lambda: None, wanted: Container[str] | None = None
    ) -> Listing:
        """See `Blobs.names`."""
        start = f"{self._prefix}{folder}/"
        now: float | None = None
        written: dict[str, float] = {}
        sizes: dict[str, int] = {}
        for page in self._pages(folder, start):
            alive()
            now = _date(page) if now is None else now
            for one in page.get("Contents", ()):
                name = one["Key"][len(start) :]
                if wanted is not None and name not in wanted:
                    continue
                written[name] = one["LastModified"].timestamp()
                sizes[name] = int(one["Size"])
        return Listing(time.time() if now is None else now, written, sizes)

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """See `Blobs.folders`."""
        start = f"{self._prefix}{folder}/" if folder else self._prefix
        found: set[str] = set()
        for page in self._pages(folder, start):
            alive()
            found.update(one["Prefix"][len(start) : -1] for one in page.get("CommonPrefixes", ()))
        return found

    def touch(self, key: str) -> bool:
        """See `Blobs.touch`. The object is copied onto itself."""
        full = self._prefix + key
        source = {"Bucket": self._bucket, "Key": full}
        with self._store_errors("touch", key):
            try:
                self._client.copy_object(
                    Bucket=self._bucket, Key=full, CopySource=source, MetadataDirective="REPLACE"
                )
            except ClientError as error:
                if _code(error) in {"NoSuchKey", "404"} or _status(error) in _CANNOT:
                    return False
                raise
        return True

    def remove(self, key: str) -> None:
        """See `Blobs.remove`."""
        with self._store_errors("delete", key):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """Do nothing: an upload is one request, so an interrupted upload leaves no object."""

    def refuses_damage(self, key: str) -> bool:
        """See `Blobs.refuses_damage`."""
        with self._store_errors("put", key):
            try:
                self._put(key, b"as it arrives", b"as it was sent")
            except ClientError as error:
                if 400 <= _status(error) < 500:
                    return True
                raise
        return False

    def _pages(self, folder: str, start: str) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of a listing of the names directly under the prefix `start`. `folder`: the
        folder's name, for error messages.
        """
        with self._store_errors("list", folder):
            pages = self._client.get_paginator("list_objects_v2")
            yield from pages.paginate(Bucket=self._bucket, Prefix=start, Delimiter="/")

    def _connect(self, credentials: Credentials) -> Any:
        with _connecting:
            return _session().client(
                "s3",
                aws_access_key_id=credentials.access_key,
                aws_secret_access_key=credentials.secret_key,
                aws_session_token=credentials.session_token or None,
                region_name=self._region,
                endpoint_url=self._endpoint or None,
                verify=self._ca_file or None,
                config=self._config,
            )

    def _put(self, key: str, body: bytes, checked: bytes, **more: str) -> None:
        """Put an object. `checked`: the bytes from which the checksum is computed; they differ from `body`
        only in a test.
        """
        if self._checksum == "crc32":
            more["ChecksumCRC32"] = _base64(zlib.crc32(checked).to_bytes(4, "big"))
        else:
            more["ContentMD5"] = _base64(hashlib.md5(checked, usedforsecurity=False).digest())
        self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=body, **more)

    @contextlib.contextmanager
    def _store_errors(self, operation: str, key: str) -> Iterator[None]:
        what = f"{self._where}: {operation} {self._prefix}{key}"
        try:
            yield
        except ClientError as error:
            # boto3's own error message may contain parts of the request, so do not copy it into the
            # StoreError.
            status, code = _status(error), _code(error)
            advice, retriable = _ADVICE.get(code, (_BUSY if status >= 500 else "", status >= 500))
            if status == 429:
                advice, retriable = _BUSY, True
            end = f"; {advice}" if advice else ""
            full = ENOSPC if advice is _FULL else None
            raise StoreError(f"{what}: HTTP {status} {code}{end}", retriable=retriable, errno=full) from error
        except (SSLError, ParamValidationError) as error:
            advice = "the endpoint, its certificate or the CA of the CheckpointStore is wrong"
            raise StoreError(f"{what}: {type(error).__name__}; {advice}", retriable=False) from error
        except BotoCoreError as error:
            raise StoreError(
                f"{what}: {type(error).__name__}; the store cannot be reached; Convoy tries again",
                retriable=True,
            ) from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _date(page: Mapping[str, Any]) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
