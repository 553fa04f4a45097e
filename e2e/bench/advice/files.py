"""The part `files`: many small files as loose files and in archives, with a warm and a cold page cache.

The readers take turns. Each round starts with another one, and a ratio compares readings of one round. What a
reader reads is compared once, outside of the measured time.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from convoy.data import PackedFiles
from convoy_workloads.bench.comparison import median_interval
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.data.packed_files.index_file import index_path
from convoy_workloads.data.packed_files.pack import pack
from e2e.bench.advice import readers
from e2e.bench.advice.readers import Reader
from e2e.bench.kit.packages import installed
from e2e.cluster import files
from e2e.cluster.progress import Progress

ROUNDS = 11
SMALL, LARGE = (20_000, 8 << 10), (160, 1 << 20)
"""Number of files, and bytes of each."""
WEB_DATASET = ("webdataset==1.0.2", "braceexpand==0.1.7")
_FILES_PER_FOLDER = 1000
_DROP = Path("/proc/sys/vm/drop_caches")
_LOOSE, _AGAIN = "loose files", "loose files, a second time"
_PACKED, _SCANNED = "PackedFiles", "PackedFiles without a saved index"
_TAR, _WEB = "tarfile, streaming", "webdataset"
_NOISE = 0.1
"""Largest gain of the same reader over itself."""
_SAME = 0.3
"""Largest gain with large files, for which opening a file costs little."""


@dataclass(frozen=True)
class Comparison:
    """Readers that take turns. The first one is the baseline."""

    title: str
    readers: Mapping[str, Reader]
    targets: Mapping[tuple[str, str], float]
    """Minimum ratio, by reader and baseline, by which the reader must be faster."""
    control: tuple[str, float] | None = None
    """Reader that must be as fast as the baseline, and the largest difference from 1."""
    cold: bool = False
    """True to empty the page cache before each reading."""


def add(found: Figures, progress: Progress) -> None:
    """Measure the part and add its figures."""
    web = installed(WEB_DATASET)
    if web is not None:
        sys.path.append(str(web))
    with _folder() as folder:
        progress.report("writing the files")
        small = _Data(folder / "small", *SMALL)
        large = _Data(folder / "large", *LARGE)
        found.add(Metric(f"{small.title}: time of `convoy data pack`", "seconds"), small.pack_seconds)
        for comparison in _comparisons(small, large, web is not None):
            progress.report(comparison.title)
            _compare(found, comparison)
    if web is None:
        for name in ("in order", "with a DataLoader"):
            metric = Metric(f"{small.title}, {name}: {_PACKED}, times faster than {_WEB}", "times")
            found.add_unmeasured(metric, "webdataset cannot be installed")
    if not _can_drop():
        metric = Metric(f"{small.title}, cold, in order: {_PACKED}, times faster than {_LOOSE}", "times")
        found.add_unmeasured(metric, "the page cache cannot be emptied without root")


class _Data:
    """Files of equal size, loose and packed."""

    def __init__(self, folder: Path, count: int, size: int) -> None:
        self.title = f"{count:,} files of {size >> 10:,} KiB"
        self.paths = _write(folder / "loose", count, size)
        began = time.perf_counter()
        self.archive = pack(folder / "loose", folder / "packed.tar")[0].path
        self.pack_seconds = time.perf_counter() - began
        self.halves = [one.path for one in pack(folder / "loose", folder / "half.tar", readers.WORKERS)]
        self.bare = folder / "bare.tar"
        os.link(self.archive, self.bare)
        assert not index_path(self.bare).exists()


def _write(folder: Path, count: int, size: int) -> list[Path]:
    chance = random.Random(size)
    paths = [folder / f"{number // _FILES_PER_FOLDER:03}" / f"{number:06}.bin" for number in range(count)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    os.sync()
    return paths


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder on a disk, and delete it afterwards."""
    root = files.cache_root() / "bench"
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="files-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _comparisons(small: _Data, large: _Data, web: bool) -> Iterator[Comparison]:
    one, two = [small.archive], small.halves
    in_order = {
        _LOOSE: readers.loose(small.paths),
        _AGAIN: readers.loose(small.paths),
        _PACKED: readers.packed(one),
        _SCANNED: readers.packed([small.bare]),
        _TAR: readers.tar_stream(one),
        **({_WEB: readers.web_dataset(one)} if web else {}),
    }
    targets = {(_PACKED, _LOOSE): 3.7, (_SCANNED, _LOOSE): 1.0, (_PACKED, _WEB): 1.0}
    yield Comparison(f"{small.title}, in order", in_order, targets, (_AGAIN, _NOISE))
    shuffled = {
        _LOOSE: readers.loose(small.paths, shuffled=True),
        _PACKED: readers.packed(one, shuffled=True),
    }
    yield Comparison(f"{small.title}, shuffled", shuffled, {(_PACKED, _LOOSE): 2.0})
    loaders = {
        _LOOSE: readers.loaded(lambda: readers.Loose(small.paths)),
        _PACKED: readers.loaded(lambda: PackedFiles(two)),
        **({_WEB: readers.loaded_web_dataset(two)} if web else {}),
    }
    targets = {(_PACKED, _LOOSE): 1.0, (_PACKED, _WEB): 1.0}
    yield Comparison(f"{small.title}, with a DataLoader", loaders, targets)
    big = {_LOOSE: readers.loose(large.paths), _PACKED: readers.packed([large.archive])}
    yield Comparison(f"{large.title}, in order", big, {}, (_PACKED, _SAME))
    if _can_drop():
        kept = {name: in_order[name] for name in (_LOOSE, _PACKED, *((_WEB,) if web else ()))}
        targets = {(_PACKED, _LOOSE): 1.0, (_PACKED, _WEB): 1.0}
        yield Comparison(f"{small.title}, cold, in order", kept, targets, cold=True)
        yield Comparison(f"{small.title}, cold, shuffled", shuffled, {(_PACKED, _LOOSE): 1.0}, cold=True)


def _compare(found: Figures, comparison: Comparison) -> None:
    """Read in turns, and add the times, the ratios, the control and the equality of what was read."""
    digests = {_digest(reader) for reader in comparison.readers.values()}
    name = f"equality: {comparison.title}: all readers read the same"
    found.add(Metric(name, "difference", 0, spread=f"{len(comparison.readers)} readers"), len(digests) - 1.0)
    times: dict[str, list[float]] = {name: [] for name in comparison.readers}
    names = list(comparison.readers)
    for number in range(ROUNDS):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            times[name].append(_seconds(comparison.readers[name], cold=comparison.cold))
    for name, values in times.items():
        for value in values:
            found.add(Metric(f"{comparison.title}: {name}", "seconds"), value)
    for (ours, theirs), target in comparison.targets.items():
        if theirs in times and ours in times:
            metric = f"{comparison.title}: {ours}, times faster than {theirs}"
            _add_ratio(found, metric, "times", times[theirs], times[ours], target)
    if _TAR in times:
        metric = f"{comparison.title}: {_TAR}, times slower than {_LOOSE}"
        _add_ratio(found, metric, "times", times[_TAR], times[_LOOSE], None)
    if comparison.control is not None:
        _add_control(found, comparison, times)


def _add_ratio(
    found: Figures,
    name: str,
    unit: str,
    longer: Sequence[float],
    shorter: Sequence[float],
    target: float | None,
) -> None:
    """Add the median of the rounds' ratios."""
    ratios = sorted(one / other for one, other in zip(longer, shorter, strict=True))
    metric = Metric(name, unit, target, higher_is_better=True, spread=_spread(ratios))
    found.add(metric, ratios[len(ratios) // 2])


def _add_control(found: Figures, comparison: Comparison, times: Mapping[str, Sequence[float]]) -> None:
    if comparison.control is None:
        return
    name, tolerance = comparison.control
    ratios = sorted(one / other for one, other in zip(times[_LOOSE], times[name], strict=True))
    title = f"negative control: {comparison.title}: {name}, gain over {_LOOSE}"
    metric = Metric(title, "ratio - 1", tolerance, aim="within", spread=f"ratio {_spread(ratios)}")
    found.add(metric, ratios[len(ratios) // 2] - 1)


def _spread(ratios: Sequence[float]) -> str:
    low, high, level = median_interval(ratios)
    return f"{level:.0%}: {low:.2f} to {high:.2f}, {len(ratios)} rounds"


def _digest(reader: Reader) -> int:
    """Return a digest of all contents, whatever their order. This reading also warms the page cache."""
    total = 0

    def see(data: bytes) -> None:
        nonlocal total
        total += zlib.crc32(data) + (len(data) << 32)

    reader(see)
    return total


def _seconds(reader: Reader, *, cold: bool) -> float:
    """Return the seconds of a reading. The reader's work is all that is measured."""
    see: Callable[[bytes], object] = len
    gc.collect()
    if cold:
        os.sync()
        _DROP.write_text("3")
    began = time.perf_counter()
    reader(see)
    return time.perf_counter() - began


def _can_drop() -> bool:
    return os.geteuid() == 0 and os.access(_DROP, os.W_OK)
