"""The options of `OnlineBatches`."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_workloads.data.alignment_messages import AlignmentSettings, Mode
from convoy_workloads.data.choices import no_integer, no_number, raise_first, unknown_choice
from convoy_workloads.data.intake import OverlongPolicy
from convoy_workloads.data.loss_scale import LossScaling


@dataclass(frozen=True, kw_only=True)
class OnlineOptions:
    """The options of `OnlineBatches`. They must be the same on all ranks."""

    tokens: int
    """Token budget: maximum number of tokens of a batch after padding."""
    window: int = 128
    """Number of samples from which a rank forms batches. A larger window has less padding, and needs more
    memory and a longer time to the first step.
    """
    longest: int | None = None
    """Maximum tokens of a sample, such as the model's context. None: the token budget."""
    shortest: int = 1
    """Minimum tokens of a sample. Shorter samples go into quarantine."""
    overlong: OverlongPolicy = "truncate"
    """Treatment of a longer sample: `truncate` cuts it, `reject` puts it into quarantine."""
    mode: Mode = "join"
    """`join`: an epoch uses every sample once. `quota`: an epoch ends after `sample_quota` samples of all
    ranks, or when a rank has no more samples.
    """
    sample_quota: int | None = None
    """Samples of an epoch in the mode `quota`."""
    loss_scaling: LossScaling = "exact"
    """`exact`: by loss terms, `approx`: by samples, `none`: every batch counts the same."""
    overhead: int | None = None
    """Tokens that take as long as the fixed cost of a batch. If given, batches have the least total cost."""
    slots: int = 0
    """Maximum steps of a round; 0: no limit but the window."""
    warmup_rounds: int = 0
    """Number of rounds in which the window grows to its size."""
    shuffle: bool = True
    """True to read each epoch in another random order. A DataLoader's own setting replaces it."""
    seed: int = 0
    workers: int = 0
    """Worker processes that read samples. A DataLoader's own setting replaces it."""
    timeout_seconds: float = 300.0
    """Seconds that a worker may need for a sample, and a rank for an exchange."""

    def __post_init__(self) -> None:
        choices = {"mode": Mode, "overlong": OverlongPolicy, "loss_scaling": LossScaling}
        whole = ["tokens", "window", "shortest", "slots", "warmup_rounds", "workers", "seed"]
        whole += [one for one in ("longest", "overhead", "sample_quota") if getattr(self, one) is not None]
        problems = [unknown_choice(name, getattr(self, name), known) for name, known in choices.items()]
        problems += [no_integer(name, getattr(self, name)) for name in whole]
        raise_first([*problems, no_number("timeout_seconds", self.timeout_seconds)], ValueError)
        for name in ("tokens", "window", "shortest"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is less than 1")
        for name in ("slots", "warmup_rounds", "workers", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")
        if self.overhead is not None and self.overhead < 0:
            raise ValueError(f"overhead: {self.overhead} is negative")
        if not self.timeout_seconds > 0:
            raise ValueError(f"timeout_seconds: {self.timeout_seconds} is not positive")
        if self.longest is not None and not self.shortest <= self.longest <= self.tokens:
            raise ValueError(f"longest: {self.longest} must be from {self.shortest} to tokens={self.tokens}")
        if self.shortest > self.tokens:
            raise ValueError(f"tokens: no sample of {self.shortest} tokens fits into {self.tokens}")
        if self.sample_quota is not None and (self.mode != "quota" or self.sample_quota < 1):
            raise ValueError("sample_quota: needs mode='quota' and at least 1 sample")

    def alignment(self) -> AlignmentSettings:
        """Return the settings of the alignment."""
        return AlignmentSettings(
            budget=self.tokens,
            window=self.window,
            slots=self.slots,
            warmup_rounds=self.warmup_rounds,
            overhead=self.overhead,
            mode=self.mode,
            quota=self.sample_quota,
            seed=self.seed,
        )
