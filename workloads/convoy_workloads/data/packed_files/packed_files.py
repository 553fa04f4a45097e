"""Files in tar archives, read one by one without unpacking."""

from __future__ import annotations

import errno
import operator
import os
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, SupportsIndex

from convoy_workloads.data.packed_files.errors import PackedFilesError
from convoy_workloads.data.packed_files.index_file import load_index
from convoy_workloads.data.packed_files.tar_index import Stamp, TarIndex
from convoy_workloads.data.packed_files.tar_scan import scan

_NOT_PICKLED = ("_fds", "_close", "_number_of")
Decode = Callable[[str, bytes], Any]
"""Makes a sample of a file's name and contents."""


class PackedFiles:
    """The files in one or several tar archives, as a dataset for a DataLoader.

    ```python
    files = PackedFiles("train.tar", decode=lambda name, data: (image(data), label(name)))
    loader = DataLoader(files, batch_size=64, shuffle=True, num_workers=4)
    ```

    `files[3]` and `files["cats/1.jpg"]` are samples: what `decode` returns, or the bytes without it.
    Iteration yields the samples in the order of the archives, which is the fastest order on a cold disk.

    Objects can be pickled if `decode` can, and can be used by several processes and threads.
    Raises PackedFilesError for an archive that is compressed, damaged, truncated or changed while in use.
    """

    def __init__(self, archives: str | Path | Iterable[str | Path], decode: Decode | None = None) -> None:
        """Open the archives. Their index is read from the file beside them, or made from their headers.

        `archives`: paths of uncompressed tar archives. If files have the same name, the last one counts.
        """
        paths = [archives] if isinstance(archives, (str, Path)) else list(archives)
        if not paths:
            raise PackedFilesError("no archive is given")
        self._paths = [Path(one) for one in paths]
        self._decode = decode
        self._open()
        self._stamps = [Stamp.of(fd) for fd in self._fds]
        found = [
            load_index(path, stamp) or scan(path, fd, stamp.size)
            for path, fd, stamp in zip(self._paths, self._fds, self._stamps, strict=True)
        ]
        self._skipped = sum((Counter(one.skipped) for one in found), Counter[str]())
        self._replaced = sum(one.replaced for one in found)
        self._names, self._archives, self._offsets, self._sizes = _joined(found)
        if len(found) > 1:
            self._drop_replaced()

    @cached_property
    def _number_of(self) -> dict[str, int]:
        """The number of each file, by name. A program that uses numbers only needs no memory for it."""
        return {name: number for number, name in enumerate(self._names)}

    def _drop_replaced(self) -> None:
        """Keep the last of the files with the same name in several archives."""
        kept = sorted({name: number for number, name in enumerate(self._names)}.values())
        if len(kept) == len(self._names):
            return
        self._replaced += len(self._names) - len(kept)
        self._names = [self._names[number] for number in kept]
        for field in ("_archives", "_offsets", "_sizes"):
            numbers: array[int] = getattr(self, field)
            setattr(self, field, array(numbers.typecode, (numbers[number] for number in kept)))

    @property
    def names(self) -> Sequence[str]:
        """The name of each file, in the order of the archives."""
        return self._names

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each file, in the order of the archives."""
        return self._sizes

    @property
    def skipped(self) -> Mapping[str, int]:
        """Number of entries that are no files, by kind, such as `{"symbolic links": 2}`."""
        return self._skipped

    @property
    def replaced(self) -> int:
        """Number of files that a later file of the same name replaces."""
        return self._replaced

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        """Return True if there is a file of this name."""
        return name in self._number_of

    def __getitem__(self, which: SupportsIndex | str) -> Any:
        """Return the sample of a file, by number or name."""
        number = self._number(which)
        data = self._read(number)
        return data if self._decode is None else self._decode(self._names[number], data)

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in the order of the archives."""
        return (self[number] for number in range(len(self)))

    def read(self, which: SupportsIndex | str) -> bytes:
        """Return the contents of a file, by number or name."""
        return self._read(self._number(which))

    def close(self) -> None:
        """Close the archives."""
        self._close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without open files."""
        return {key: value for key, value in self.__dict__.items() if key not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the archives again. Raises PackedFilesError if one has changed."""
        self.__dict__.update(state)
        self._open()
        for path, fd, stamp in zip(self._paths, self._fds, self._stamps, strict=True):
            if Stamp.of(fd) != stamp:
                raise PackedFilesError(f"{path} has changed since its index was read: open it again")

    def _open(self) -> None:
        self._fds = _open_all(self._paths)
        self._close = weakref.finalize(self, _close_all, self._fds)

    def _number(self, which: SupportsIndex | str) -> int:
        if isinstance(which, str):
            return self._number_of[which]
        number = operator.index(which)
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no file {number}: there are {len(self)}")
        return number % len(self)

    def _read(self, number: int) -> bytes:
        fd, size, offset = self._fds[self._archives[number]], self._sizes[number], self._offsets[number]
        data = os.pread(fd, size, offset)
        return data if len(data) == size else self._read_on(number, data)

    def _read_on(self, number: int, data: bytes) -> bytes:
        """Read the rest of a file: one call of the system reads at most 2 GiB."""
        fd, size, offset = self._fds[self._archives[number]], self._sizes[number], self._offsets[number]
        parts, have = [data], len(data)
        while have < size:
            more = os.pread(fd, size - have, offset + have)
            if not more:
                path = self._paths[self._archives[number]]
                raise PackedFilesError(
                    f"{path}, byte {offset + have}: the archive has become shorter while in use"
                )
            parts.append(more)
            have += len(more)
        return b"".join(parts)


def _joined(found: Sequence[TarIndex]) -> tuple[list[str], array[int], array[int], array[int]]:
    """Return the names, the numbers of the archives, the offsets and the sizes of all files."""
    archives = array("I")
    for number, one in enumerate(found):
        archives.extend(array("I", [number]) * len(one.names))
    offsets, sizes = array("Q"), array("Q")
    for one in found:
        offsets.extend(one.offsets)
        sizes.extend(one.sizes)
    return list(chain.from_iterable(one.names for one in found)), archives, offsets, sizes


def _open_all(paths: Sequence[Path]) -> list[int]:
    """Open the archives. Raises PackedFilesError or OSError."""
    fds: list[int] = []
    for path in paths:
        try:
            fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            _close_all(fds)
            if error.errno != errno.EMFILE:
                raise
            raise PackedFilesError(
                f"{path}: too many open files. Each of the {len(paths)} archives is one: raise `ulimit -n`,"
                " or pack into fewer archives"
            ) from error
    return fds


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())
