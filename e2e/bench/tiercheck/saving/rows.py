"""Adds the rows of docs/bench/tiercheck.json. A ratio compares two values of the same round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.tiercheck.saving.libraries import DLROVER, RESILIENCY
from e2e.bench.tiercheck.saving.memory import ALL, CPU, EARLY, FULL, LATE, Measurements
from e2e.bench.tiercheck.saving.peer import Transfers
from e2e.bench.tiercheck.saving.rank import RESERVED
from e2e.bench.tiercheck.saving.save_methods import COPY, OURS, PROCESS, SYNC, THREAD
from e2e.bench.tiercheck.saving.steps import (
    EACH,
    ENCODING,
    GRADIENTS,
    LONG_SECONDS,
    PLAIN_JOURNAL,
    SPARSE,
    WITHOUT,
)
from e2e.bench.tiercheck.saving.upload import Uploads

SHARDS = "all shards of another node fetched and checked"
COPIES = "copy of a shard sent to another node, until it is committed"
STREAM = "plain program, one stream without TLS"
TLS_STREAM = "plain program, one stream with TLS"
UNLIMITED = ", link without a limit"
LINK_TARGET = 0.85
"""Minimum share of a link's speed that a transfer uses."""
UNLIMITED_TARGET = 4.0
"""Minimum Gbit/s of a transfer over a link without a limit."""
PLAIN = "copy of the state into warm memory"
STALL = "full save, stall"
NAMES = {
    COPY: PLAIN,
    OURS: STALL,
    f"first {OURS}": "first full save, stall",
    RESERVED: "memory made ready before the first save, beside the training",
    "committed": "full save, until it is committed",
    SYNC: "torch.distributed.checkpoint save",
    THREAD: "torch.distributed.checkpoint async_save, thread, stall",
    PROCESS: "torch.distributed.checkpoint async_save, process, stall",
    DLROVER: f"{DLROVER}, stall",
    f"first {DLROVER}": f"first {DLROVER}, stall",
    RESILIENCY: f"{RESILIENCY}, stall",
    f"first {RESILIENCY}": f"first {RESILIENCY}, stall",
    "copy at the restore": "copy of the state at the restore",
    "fresh copy at the restore": "copy of the state into fresh memory at the restore",
    "restore from memory": "restore from local memory",
}
"""Names of the rows whose unit is seconds, by kind of measurement."""
RATIOS: tuple[tuple[str, str, str, float | None], ...] = (
    ("full save, stall / copy", OURS, COPY, 1.15),
    ("full save, stall / torch save", OURS, SYNC, None),
    ("full save, stall / async_save thread", OURS, THREAD, 0.25),
    ("full save, stall / async_save process", OURS, PROCESS, 0.5),
    (f"full save, stall / {DLROVER}", OURS, DLROVER, 1.0),
    (f"first full save, stall / first {DLROVER}", f"first {OURS}", f"first {DLROVER}", 0.1),
    (f"full save, stall / {RESILIENCY}", OURS, RESILIENCY, 1.0),
    (f"first full save, stall / first {RESILIENCY}", f"first {OURS}", f"first {RESILIENCY}", 0.1),
    (f"copy of the state / first {DLROVER}", COPY, f"first {DLROVER}", None),
    ("restore from local memory / copy", "restore from memory", "copy at the restore", None),
    (
        "restore from local memory / copy into fresh memory",
        "restore from memory",
        "fresh copy at the restore",
        1.3,
    ),
)
"""Ratios: row name, kind of the numerator, kind of the denominator, and target (None for no target)."""


def add_memory_rows(found: Measurements, figures: Figures) -> None:
    """Add the rows of saves in memory and of their costs."""
    figures.add(Metric("size of the state", "GB"), found.values["bytes"][0] / 1e9)
    for kind, name in NAMES.items():
        for value in found.values.get(kind, ()):
            figures.add(Metric(name, "s", baseline=PLAIN if kind != COPY else ""), value)
    for name, one, other, target in RATIOS:
        missing = found.missing.get(other.removeprefix("first "))
        if missing is not None:
            figures.add_unmeasured(Metric(name, "x", target), missing)
        elif one in found.values:
            _ratios(figures, Metric(name, "x", target), found.values[one], found.values[other])
    if OURS in found.values:
        _journal(found, figures)
        _memory(found, figures)
    _steps(found, figures)


def add_peer_rows(found: Sequence[Transfers], figures: Figures) -> None:
    """Add the rows of transfers between two nodes."""
    for one in found:
        where = f", link of {one.bits_per_second / 1e9:.0f} Gbit/s" if one.bits_per_second else UNLIMITED
        kinds = (
            (SHARDS, one.restores, one.restore_bytes, True),
            (COPIES, one.copies, one.copy_bytes, True),
            (STREAM, one.streams, one.restore_bytes, False),
            (TLS_STREAM, one.tls_streams, one.restore_bytes, False),
        )
        for name, values, size, ours in kinds:
            _transfers(figures, f"{name}{where}", values, 8 * size, one.bits_per_second if ours else None)


def _transfers(figures: Figures, name: str, values: Sequence[float], bits: int, link: int | None) -> None:
    """Add the rows of one kind of transfer. `link`: bits per second of the link, or 0 if it has no limit;
    None for a transfer without a target.
    """
    target = UNLIMITED_TARGET if link == 0 else None
    for seconds in values:
        figures.add(Metric(name, "s"), seconds)
        figures.add(Metric(f"{name}, speed", "Gbit/s", target, higher_is_better=True), bits / seconds / 1e9)
        if link:
            share = Metric(
                f"{name}, link's time for the bytes / time", "x", LINK_TARGET, higher_is_better=True
            )
            figures.add(share, bits / link / seconds)


def add_upload_rows(found: Uploads, figures: Figures) -> None:
    """Add the rows of uploads to an S3 server."""
    plain = "boto3 upload_file of the same bytes"
    for ours, theirs in zip(found.ours, found.theirs, strict=True):
        figures.add(Metric("upload of a generation", "s", baseline=plain), ours)
        figures.add(Metric(plain, "s"), theirs)
        metric = Metric("upload of a generation, speed / boto3 upload_file", "x", 0.8, higher_is_better=True)
        figures.add(metric, theirs / ours)


def add_plain_rows(found: Mapping[str, Sequence[float]], figures: Figures) -> None:
    """Add the rows of the plain programs."""
    for name, values in found.items():
        for value in values:
            figures.add(Metric(f"plain program: {name}", "s"), value)


def add_profile_rows(found: Mapping[str, Sequence[float]], figures: Figures) -> None:
    """Add the rows of what a save and a restore use."""
    for name, values in found.items():
        unit = "s" if "time" in name else "GB" if "bytes" in name else "times"
        for value in values:
            figures.add(Metric(f"profile of {name}", unit), value / 1e9 if unit == "GB" else value)


def _journal(found: Measurements, figures: Figures) -> None:
    stall = "journal of one step, stall"
    whole = statistics.median(found.values[OURS])
    for value in journalled(found.values):
        figures.add(Metric(stall, "s", baseline=PLAIN), value)
        figures.add(Metric(f"{stall} / full save, stall", "x", 1 / 3), value / whole)
    for value in found.values.get(GRADIENTS, ()):
        figures.add(Metric("plain copy of the gradients / full save, stall", "x"), value / whole)
    for kind, target in (("", 0.3), (" of bf16 values", 0.12)):
        name = f"journal segment of one step{' with gradients' if kind else ''}{kind} / full save, bytes"
        if why := found.missing.get(f"segment bytes{kind}"):
            figures.add_unmeasured(Metric(name, "x", target), why)
        for value in found.values.get(f"segment bytes{kind}", ()):
            figures.add(Metric(name, "x", target), value / found.values["full save bytes"][0])
        for encoded in found.values.get(f"encoded gradients{kind} / raw", ()):
            share = statistics.median(found.values[f"segment bytes{kind}"]) * encoded
            figures.add(
                Metric(f"{name}, as it travels encoded", "x", target),
                share / found.values["full save bytes"][0],
            )
        for value in found.values.get(f"{ENCODING}{kind}", ()):
            text = f"processor time to encode the gradients of one step{kind}"
            figures.add(Metric(text, "s", baseline=PLAIN), value)


def _memory(found: Measurements, figures: Figures) -> None:
    (size,) = found.values["bytes"]
    for seconds in found.values[CPU]:
        figures.add(Metric("agent, processor time per GB saved", "s", 0.25), seconds / size * 1e9)
    if LATE in found.values:
        name = "agent's memory at the end of the steps / after five minutes"
        figures.add(Metric(name, "x", 1.05), found.values[LATE][0] / found.values[EARLY][0])
    figures.add(Metric("node's memory with full saves alone / state", "x"), found.values[FULL][0] / size)
    figures.add(Metric("node's memory with the journal too / state", "x"), found.values[ALL][0] / size)


def _steps(found: Measurements, figures: Figures) -> None:
    names = [name for name in found.values if name.startswith("steps of ") and name.endswith(WITHOUT)]
    for steps in (name.removesuffix(f" {WITHOUT}") for name in names):
        seconds = {
            kind: found.values[f"{steps} {kind}"]
            for kind in (WITHOUT, EACH, SPARSE, PLAIN_JOURNAL)
            if f"{steps} {kind}" in found.values
        }
        for kind, values in seconds.items():
            for value in values:
                figures.add(Metric(f"{steps} {kind}", "s"), value)
        plain, turns = seconds[WITHOUT], len(seconds[EACH])
        # Every turn has several blocks without saves between the others, so compare with their mean.
        each = len(plain) // turns
        beside = [statistics.mean(plain[at * each : (at + 1) * each]) for at in range(turns)]
        if PLAIN_JOURNAL in seconds:
            _ratios(
                figures, Metric(f"{steps}, {PLAIN_JOURNAL} / without", "x"), seconds[PLAIN_JOURNAL], beside
            )
        targeted = float(steps.split()[2]) >= LONG_SECONDS
        for kind, target in ((EACH, 1.03), (SPARSE, 1.01)):
            metric = Metric(f"{steps}, {kind} / without", "x", target if targeted else None)
            _ratios(figures, metric, seconds[kind], beside)
            saves = found.values[f"{steps} {kind}: saves"]
            figures.add(Metric(f"{steps}, {kind}: saves that found free memory", "x"), statistics.mean(saves))


def journalled(values: dict[str, list[float]]) -> list[float]:
    """Return the seconds that the journal and the save add to each journalled step."""
    plain = statistics.median(values["step"])
    steps, saves = values.get("step with its gradients written", ()), values.get("segment", ())
    return [step - plain + save for step, save in zip(steps, saves, strict=False)]


def _ratios(figures: Figures, metric: Metric, ones: Sequence[float], others: Sequence[float]) -> None:
    # If a method fails, it has no values in later rounds. So compare only the rounds in which both methods
    # have a value.
    for one, other in zip(ones, others, strict=False):
        figures.add(metric, one / other)
