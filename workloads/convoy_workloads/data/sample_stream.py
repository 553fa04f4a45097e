"""The reading of a dataset's samples, in a given order and by worker processes if there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

PREFETCHED = 2
"""The prefetch_factor of a DataLoader whose user has given none."""


class LoaderError(RuntimeError):
    """Raised if samples cannot be read: a worker process has died, or did not deliver in time."""


@dataclass(frozen=True)
class Source:
    """A dataset and the way to read it."""

    dataset: Any
    """A map-style dataset: it has `__len__` and `__getitem__`."""
    workers: int = 0
    """Number of worker processes; 0: samples are read in this process."""
    timeout_seconds: float = 300.0
    """Seconds that a worker may need for a sample."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the DataLoader."""
    pin_memory: bool = False
    """True to copy the batches to page-locked memory."""

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def read(self, order: Sequence[int], ahead: int, seed: int) -> Iterator[Any]:
        """Yield the samples of `order`. Workers read about `ahead` samples in advance. `seed`: of the random
        numbers in workers.

        Raises LoaderError if a worker dies or is too slow, and the dataset's own error if it raises one.
        """
        if not order:
            return
        # Without a generator of its own, the DataLoader would draw from torch's. A resumed run, which reads
        # anew, would then get other random numbers than an undisturbed one.
        settings: dict[str, Any] = {"generator": torch.Generator().manual_seed(seed), **self.settings}
        if self.workers:
            settings["timeout"] = self.timeout_seconds
            settings.setdefault("prefetch_factor", max(2, -(-ahead // self.workers)))
        loader: DataLoader[Any] = DataLoader(
            self.dataset,
            batch_size=None,
            sampler=order,
            num_workers=self.workers,
            collate_fn=_unchanged,
            **settings,
        )
        values = iter(loader)
        for _ in order:
            try:
                value = next(values)
            except StopIteration:
                raise LoaderError(f"the dataset ended before its {len(order)} samples were read") from None
            except RuntimeError as error:
                if (why := _loader_fault(error)) is None:
                    raise
                raise LoaderError(why) from error
            yield value


def _unchanged(sample: Any) -> Any:
    return sample


def _loader_fault(error: RuntimeError) -> str | None:
    """Return the message about a fault of a DataLoader's workers; None if the dataset itself has failed."""
    text = str(error)
    if "exited unexpectedly" in text or "is killed by signal" in text:
        return f"a worker process of the DataLoader died: {text.splitlines()[0]}"
    if "DataLoader timed out" in text:
        return "no worker process of the DataLoader delivered a sample in time: see `timeout_seconds`"
    return None


def pinned(batch: Any) -> Any:
    """Return a batch in page-locked memory, from which a copy to an accelerator needs no wait. Without an
    accelerator, return it unchanged, as a DataLoader does.
    """
    return _pin(batch) if torch.accelerator.is_available() else batch


def _pin(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {name: _pin(one) for name, one in part.items()}
    if isinstance(part, list | tuple):
        listed = [_pin(one) for one in part]
        return type(part)(*listed) if hasattr(part, "_fields") else type(part)(listed)
    return part.pin_memory() if hasattr(part, "pin_memory") else part


def source_of(data: Any, workers: int, timeout_seconds: float) -> tuple[Source, bool | None, Any]:
    """Return the source of a dataset or of a DataLoader, whether the DataLoader shuffles, and its
    collate_fn. The last two are None for a dataset.

    Raises TypeError for data without numbered samples, and for a DataLoader with a sampler of its own;
    ValueError for settings of a DataLoader that cannot be kept.
    """
    if not isinstance(data, DataLoader):
        if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
            raise TypeError(
                f"{type(data).__name__} has no numbered samples: use a dataset with __len__ and __getitem__, "
                "because each sample is used exactly once"
            )
        return Source(data, workers, timeout_seconds), None, None
    plain, _, _ = source_of(data.dataset, data.num_workers, data.timeout or timeout_seconds)
    # A DataLoader with a batch_sampler has a sampler too, which it does not use.
    batched = data.batch_sampler if data.batch_size is None else None
    if batched is not None and type(batched) is not BatchSampler:
        raise TypeError("a DataLoader with a batch_sampler of its own is not supported: pass the dataset")
    shuffle = _shuffles(data.sampler if batched is None else batched.sampler, plain.count)
    if data.drop_last or (batched is not None and batched.drop_last):
        raise ValueError(
            "drop_last: every sample of an epoch is used once, and all ranks take the same number of steps: "
            "pass a DataLoader without drop_last"
        )
    if data.persistent_workers:
        raise ValueError(
            "persistent_workers: the workers start anew in each epoch, because they get its order: pass a "
            "DataLoader without persistent_workers"
        )
    settings: dict[str, Any] = {"worker_init_fn": data.worker_init_fn}
    if data.generator is not None:
        settings["generator"] = data.generator
    if data.num_workers:
        settings["multiprocessing_context"] = data.multiprocessing_context
        if data.prefetch_factor not in (None, PREFETCHED):
            # The user counts batches, but the workers of a Source read single samples.
            size = data.batch_size if batched is None else batched.batch_size
            settings["prefetch_factor"] = data.prefetch_factor * (size or 1)
    own = (data.batch_size is not None or batched is not None) and data.collate_fn is not default_collate
    collate = data.collate_fn if own else None
    source = Source(plain.dataset, plain.workers, plain.timeout_seconds, settings, data.pin_memory)
    return source, shuffle, collate


def _shuffles(sampler: Any, count: int) -> bool:
    """Return True if a sampler yields the whole dataset in random order, False for the order of the numbers.

    Raises TypeError for other samplers. A class derived from a sampler of PyTorch may yield anything.
    """
    if type(sampler) is DistributedSampler:
        return bool(sampler.shuffle)
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == count:
        return True
    if type(sampler) is SequentialSampler:
        return False
    raise TypeError(f"the DataLoader's sampler {type(sampler).__name__} is not supported: pass the dataset")
