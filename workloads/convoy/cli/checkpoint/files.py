"""Writes files and folders so that they appear either complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from convoy.cli.cluster import Failure


def require_free(target: Path, folder: bool) -> None:
    """Raise Failure unless `target` can be created. If `folder` is True, `target` may also be an existing
    empty folder.
    """
    with _os_errors_as_failures(target):
        if target.is_dir():
            if not folder:
                raise Failure(f"{target} is a folder: give the path of a file")
            if any(target.iterdir()):
                raise Failure(f"folder {target} is not empty: choose an empty or new one")
        elif target.exists():
            raise Failure(f"{target} already exists: choose another path")
        if not target.absolute().parent.is_dir():
            raise Failure(f"folder {target.absolute().parent} does not exist")


@contextlib.contextmanager
def write_atomically(target: Path, folder: bool) -> Iterator[Path]:
    """Yield a temporary path beside `target` to write to. At the end, flush the temporary path to disk and
    rename it to `target`.

    After an error the temporary path is deleted. Raises Failure if `target` exists or the file system
    reports an error.
    """
    require_free(target, folder)
    target = target.absolute()
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _os_errors_as_failures(target):
            yield partial
            for path in [*partial.rglob("*"), partial]:
                _sync(path)
            require_free(target, folder)
            partial.replace(target)
            _sync(target.parent)
    finally:
        delete(partial)


@contextlib.contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, so it is on the same file system. Delete the folder at the
    end.
    """
    target = target.absolute()
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _os_errors_as_failures(target):
            folder.mkdir(mode=0o700)
            yield folder
    finally:
        delete(folder)


def delete(path: Path) -> None:
    """Delete a file or folder. Ignore errors."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def _os_errors_as_failures(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"{error.filename or target}: {error.strerror or error}") from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
