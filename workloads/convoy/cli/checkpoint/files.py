"""Files and folders that appear whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from convoy.cli.cluster import Failure


def require_free(target: Path, folder: bool) -> None:
    """Failure when something is at `target` already; an empty folder is nothing where one is to be made."""
    with _os_errors_as_failures(target):
        if target.is_dir():
            if not folder:
                raise Failure(f"{target} is a folder; a file is to be written there")
            if any(target.iterdir()):
                raise Failure(f"{target} is not empty")
        elif target.exists():
            raise Failure(f"{target} is there already")
        if not target.absolute().parent.is_dir():
            raise Failure(f"there is no folder {target.absolute().parent}")


@contextlib.contextmanager
def write_atomically(target: Path, folder: bool) -> Iterator[Path]:
    """A name beside `target` for a file or folder; synced, it takes the name of `target` in the end.

    After an error nothing is left. Failure when `target` is taken, or the file system refuses.
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
    """Yield a folder beside `target`, on the same file system, and delete it at the end."""
    target = target.absolute()
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _os_errors_as_failures(target):
            folder.mkdir(mode=0o700)
            yield folder
    finally:
        delete(folder)


def delete(path: Path) -> None:
    """Nothing is at `path` any more, as far as the file system allows."""
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
