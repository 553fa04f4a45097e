"""Readers of many small files: loose files, PackedFiles, and what users take for tar archives.

Each reader reads all files once and calls `see` with the contents of each.
"""

from __future__ import annotations

import importlib
import random
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from convoy.data import PackedFiles

See = Callable[[bytes], object]
Reader = Callable[[See], None]
BATCH = 64
WORKERS = 2
_SEED = 1


def loose(paths: Sequence[Path], *, shuffled: bool = False) -> Reader:
    """Return a reader that opens each file."""
    names = [str(path) for path in paths]
    order = _order(len(names), shuffled)

    def read(see: See) -> None:
        for number in order:
            with open(names[number], "rb") as file:  # noqa: PTH123 - as fast as loose files can be read
                see(file.read())

    return read


def packed(archives: Sequence[Path], *, shuffled: bool = False) -> Reader:
    """Return a reader that opens the archives and reads all files, also the index."""

    def read(see: See) -> None:
        files = PackedFiles(archives)
        for number in _order(len(files), shuffled):
            see(files[number])
        files.close()

    return read


def tar_stream(archives: Sequence[Path]) -> Reader:
    """Return a reader that streams the archives with the standard library."""

    def read(see: See) -> None:
        for path in archives:
            with tarfile.open(path, "r|") as archive:
                for member in archive:
                    opened = archive.extractfile(member)
                    if opened is not None:
                        see(opened.read())

    return read


def web_dataset(archives: Sequence[Path]) -> Reader:
    """Return a reader that streams the archives with the package webdataset."""
    package = importlib.import_module("webdataset")
    urls = [str(path) for path in archives]

    def read(see: See) -> None:
        for sample in package.WebDataset(urls, shardshuffle=False):
            see(sample["bin"])

    return read


class Loose:
    """A dataset of loose files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [str(path) for path in paths]

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._paths)

    def __getitem__(self, number: int) -> bytes:
        """Return the contents of a file."""
        with open(self._paths[number], "rb") as file:  # noqa: PTH123 - as fast as loose files can be read
            return file.read()


def loaded(make: Callable[[], Any]) -> Reader:
    """Return a reader that shuffles a dataset in a DataLoader with worker processes. The workers hand over
    the contents as they are.
    """
    from torch.utils.data import DataLoader  # noqa: PLC0415

    def read(see: See) -> None:
        loader: Iterable[list[bytes]] = DataLoader(
            make(), batch_size=BATCH, shuffle=True, num_workers=WORKERS, collate_fn=list
        )
        for batch in loader:
            for one in batch:
                see(one)

    return read


def loaded_web_dataset(archives: Sequence[Path]) -> Reader:
    """Return a reader with the package webdataset in worker processes. It shuffles within a buffer."""
    from torch.utils.data import DataLoader  # noqa: PLC0415

    package = importlib.import_module("webdataset")
    urls = [str(path) for path in archives]

    def read(see: See) -> None:
        dataset = package.WebDataset(urls, shardshuffle=False).shuffle(1000).batched(BATCH, collation_fn=list)
        for batch in DataLoader(dataset, batch_size=None, num_workers=WORKERS):
            for one in batch:
                see(one["bin"])

    return read


def _order(count: int, shuffled: bool) -> Sequence[int]:
    order = list(range(count))
    if shuffled:
        random.Random(_SEED).shuffle(order)
    return order
