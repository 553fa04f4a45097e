"""The shape of a training job that the benches of traces run: model, batch, buckets, ranks and links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A DDP training of a plain network of linear layers."""

    width: int = 1024
    depth: int = 4
    batch: int = 128
    """Samples of a step and rank."""
    bucket_mib: float = 4.0
    ranks: int = 2
    bits_per_second: int | None = None
    """Rate of what each rank sends; None for the loopback interface, without a limit."""
    emulated: bool = False
    """True if the process group limits the rate, and not the network."""

    @property
    def parameters(self) -> int:
        """Return the number of the model's parameters."""
        return self.depth * (self.width + 1) * self.width

    def __str__(self) -> str:
        model = f"{self.ranks} ranks, width {self.width}, depth {self.depth}, batch {self.batch}"
        kind = " emulated" if self.emulated else ""
        link = "" if self.bits_per_second is None else f", {self.bits_per_second / 1e6:g} Mbit/s{kind}"
        return f"{model}, {self.bucket_mib:g} MiB buckets{link}"
