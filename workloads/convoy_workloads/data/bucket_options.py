"""The options of `AdaptiveBuckets`."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_workloads.data.bucket_table import BucketError, Rule
from convoy_workloads.data.choices import no_integer, no_number, raise_first, unknown_choice
from convoy_workloads.data.dealing import Dealing


@dataclass(frozen=True, kw_only=True)
class BucketOptions:
    """The options of `AdaptiveBuckets`. They must be the same on all ranks."""

    memory_tokens: int
    """Maximum tokens of a batch."""
    rule: Rule = "measured"
    """`measured`: cost by the fitted time of a step. `paper`: by B S^p. `equal_tokens`: memory alone."""
    compute: float | None = None
    """Maximum cost of a batch: in seconds for `measured`, in units of S^p for `paper`. None: the cost of one
    sample of the longest bucket.
    """
    exponent: float | None = None
    """Exponent p of the rule `paper`. None: fitted."""
    dealing: Dealing = "window_sorted"
    """`window_sorted`: the ranks of a step get batches of like cost. `none`: at random."""
    window: int = 512
    """Samples of a window. The table may change between windows only."""
    refit_steps: int = 200
    """Minimum steps between two fits of the cost; 0: the first table stays."""
    shuffle: bool = True
    seed: int = 0
    timeout_seconds: float = 300.0
    """Seconds that a rank may need for an exchange."""

    def __post_init__(self) -> None:
        whole = ("memory_tokens", "window", "refit_steps", "seed")
        numbers = [one for one in ("compute", "exponent") if getattr(self, one) is not None]
        problems = [unknown_choice("rule", self.rule, Rule), unknown_choice("dealing", self.dealing, Dealing)]
        problems += [no_integer(name, getattr(self, name)) for name in whole]
        problems += [no_number(name, getattr(self, name)) for name in (*numbers, "timeout_seconds")]
        raise_first(problems, BucketError)
        for name in ("memory_tokens", "window"):
            if getattr(self, name) < 1:
                raise BucketError(f"{name}: {getattr(self, name)} is less than 1")
        for name in ("refit_steps", "seed"):
            if getattr(self, name) < 0:
                raise BucketError(f"{name}: {getattr(self, name)} is negative")
        if not self.timeout_seconds > 0:
            raise BucketError(f"timeout_seconds: {self.timeout_seconds} is not positive")
        if self.compute is not None and self.compute <= 0:
            raise BucketError(f"compute: {self.compute} is not positive")
        if self.exponent is not None and not 1 <= self.exponent <= 3:
            raise BucketError(f"exponent: {self.exponent} is not from 1 to 3")
