"""Cases of the part predicted: jobs that are recorded once, and the links and buckets to predict for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from e2e.bench.traces.shape import Shape

BASE_RATE = 1_000_000_000
"""Bits a second of the links on which the jobs are recorded."""
WIDE = Shape(width=768, depth=8, batch=256, bucket_mib=4, bits_per_second=BASE_RATE)
"""The job whose trace calibrates the links for all jobs of two ranks."""
SHORT = Shape(width=1024, depth=4, batch=64, bucket_mib=4, bits_per_second=BASE_RATE)
FREE = replace(WIDE, bits_per_second=None)
"""The job that predicts steps on emulated links: recorded without a limit."""
FOUR = Shape(width=640, depth=6, batch=64, bucket_mib=4, ranks=4, bits_per_second=BASE_RATE)
RECORDED = (WIDE, SHORT, FOUR)
ALL_IN_ONE = 32.0
"""MiB of a bucket that holds all gradients of these jobs."""


@dataclass(frozen=True)
class Case:
    """A prediction from the trace of a recorded job."""

    recorded: Shape
    speed: float
    """Rate of the links, as a factor of BASE_RATE."""
    bucket_mib: float | None = None
    """Size of the buckets; None for the recorded one."""

    @property
    def shape(self) -> Shape:
        """Return the shape of the job that is predicted. Without a limit in the recorded job, the links are
        emulated.
        """
        rate = self.recorded.bits_per_second
        bucket = self.recorded.bucket_mib if self.bucket_mib is None else self.bucket_mib
        return replace(
            self.recorded,
            bits_per_second=round((rate or BASE_RATE) * self.speed),
            bucket_mib=bucket,
            emulated=rate is None,
        )

    @property
    def bucket_bytes(self) -> int | None:
        """Return the bytes of the other buckets; None for the recorded ones."""
        return None if self.bucket_mib is None else round(self.bucket_mib * 2**20)

    def __str__(self) -> str:
        return str(self.shape)


CASES = (
    Case(WIDE, 2),
    Case(WIDE, 0.5),
    Case(WIDE, 0.25),
    Case(WIDE, 2, ALL_IN_ONE),
    Case(WIDE, 1, ALL_IN_ONE),
    Case(WIDE, 0.5, ALL_IN_ONE),
    Case(SHORT, 2),
    Case(SHORT, 0.25),
    Case(FOUR, 0.25),
)
EMULATED = (
    Case(FREE, 2),
    Case(FREE, 0.5),
    Case(FREE, 0.25),
    Case(FREE, 1, ALL_IN_ONE),
    Case(FREE, 0.5, ALL_IN_ONE),
)
