"""The part interoperability: files of a real job beside MLCommons' own package, and its files beside ours.

Also the properties of converted traces that the conversion promises: bytes of communication, recorded times,
and waits that count once.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.traces.attributes import number_of, value_of
from convoy_workloads.traces.predict.job import job_of
from convoy_workloads.traces.predict.together import replay_together
from convoy_workloads.traces.replay import measured_span, naive_replay, replay
from convoy_workloads.traces.trace import Trace, is_communication, size_of
from convoy_workloads.traces.wire.content import decompress
from convoy_workloads.traces.wire.reader import decode
from convoy_workloads.traces.wire.writer import encode, write
from e2e.bench.traces.chakra_package import ChakraPackage, PackageError
from e2e.bench.traces.rank import ON
from e2e.bench.traces.shape import Shape
from e2e.bench.traces.training import run_training

SAMPLES = Path(__file__).parents[3] / "tests" / "unit" / "workloads" / "traces" / "fixtures" / "astra_sim"
SHAPE = Shape(width=512, depth=6, batch=64, bucket_mib=2, bits_per_second=1_000_000_000)
STEPS = 5
GENERATED = ((4, 1024, 5), (8, 2**31, 10**6), (3, 1, 0))
"""Workloads of upstream's generator: ranks, bytes, and microseconds of a computation."""
MAX_REPLAY_US = 1


def add(found: Figures) -> None:
    """Add the figures."""
    reencode(found, "samples of ASTRA-sim", sorted(SAMPLES.glob("*.et*")))
    traces = run_training(SHAPE, [ON], STEPS).traces[0]
    try:
        _beside_upstream(found, traces)
    except PackageError as error:
        found.add_unmeasured(Metric("files beside MLCommons' own package", ""), str(error).splitlines()[0])
    _bytes(found, traces)
    _replay(found, traces)


def reencode(found: Figures, what: str, paths: Iterable[Path]) -> None:
    """Decode and encode upstream's files again. The control changes a byte of each."""
    count = differ = unseen = 0
    for path in paths:
        content = decompress(path.read_bytes())
        count += 1
        differ += _again(content) != content
        changed = bytearray(content)
        changed[-1] ^= 1
        unseen += _again(bytes(changed)) == content
    least = 1 if what.startswith("files") else 12
    found.add(Metric(f"{what}, read and written again", "", target=least, higher_is_better=True), count)
    found.add(Metric(f"equality: {what} that differ after that in any byte", "", target=0), differ)
    found.add(Metric(f"negative control: {what} with a changed byte that seem equal", "", target=0), unseen)


def _again(content: bytes) -> bytes:
    """Return the file written again; nothing if the reading has findings."""
    reading = decode(content)
    return b"" if reading.findings else encode(reading.trace)


def _beside_upstream(found: Figures, traces: Iterable[Trace]) -> None:
    package = ChakraPackage.installed()
    with tempfile.TemporaryDirectory(prefix="convoy-chakra-") as name:
        folder = Path(name)
        generated = [
            path
            for number, settings in enumerate(GENERATED)
            for path in package.generate(folder / str(number), *settings)
        ]
        reencode(found, f"files of the generator of {package.version()}", generated)
        nodes = missing = wrong = 0
        for trace in traces:
            for ending in ("et", "et.gz"):
                path = folder / f"job.{trace.rank}.{ending}"
                write(trace, path)
                read = package.read(path)
                communications = [node for node in trace.nodes if is_communication(node)]
                expected = {
                    "nodes": len(trace.nodes),
                    "durations": sum(node.duration_micros > 0 for node in trace.nodes),
                    "collectives": len(communications),
                    "bytes": sum(map(size_of, communications)),
                }
                nodes += read["nodes"]
                missing += abs(expected["nodes"] - read["nodes"])
                wrong += read != expected
            uncompressed = folder / f"job.{trace.rank}.et"
            missing += abs(len(trace.nodes) - package.as_json(uncompressed, folder / "job.json"))
    reader = "MLCommons' own reader"
    found.add(Metric(f"nodes of a real job that {reader} reads: gloo, {SHAPE}", ""), nodes)
    found.add(Metric(f"equality: nodes that {reader} or its JSON tool does not read", "", target=0), missing)
    name = f"equality: files in which {reader} finds other durations, collectives or bytes"
    found.add(Metric(name, "", target=0), wrong)


def _bytes(found: Figures, traces: Iterable[Trace]) -> None:
    metric = Metric(
        "equality: bytes of communication of a step minus 4 x parameters, largest of all ranks and steps",
        "bytes",
        target=0,
    )
    for trace in traces:
        steps = defaultdict[int, int](int)
        for node in filter(is_communication, trace.nodes):
            steps[value_of(node, "step")] += size_of(node)
        if len(steps) != STEPS:
            raise ValueError(f"rank {trace.rank}: {len(steps)} steps with communication, not {STEPS}")
        found.add(metric, max(abs(size - 4 * SHAPE.parameters) for size in steps.values()))


def _replay(found: Figures, traces: list[Trace]) -> None:
    """Add the differences of replays from the recorded times."""
    naive, exact, exposed = [], [], []
    for trace in traces:
        begin = min(node.start_time_micros for node in trace.nodes)
        played, measured = replay(trace), measured_span(trace)
        starts = [abs(one.start - (one.node.start_time_micros - begin)) for one in played.played]
        exact.append(max(*starts, abs(played.span - measured)))
        naive.append(100 * (naive_replay(trace).span / measured - 1))
        exposed.append(100 * sum(number_of(node, "wait_us") for node in trace.nodes) / measured)
    job = job_of(traces)
    begin_of_all = min(map(job.first_start, range(len(traces))))
    together = [
        abs(one.start - (one.node.start_time_micros + job.offsets[number] - begin_of_all))
        for number, each in enumerate(replay_together(job).replays)
        for one in each.played
    ]
    for name, values in (
        ("replay of a rank alone: largest difference of a node's start from the recorded one", exact),
        ("replay of all ranks together: largest difference of a node's start", [max(together)]),
    ):
        for value in values:
            found.add(Metric(name, "us", target=MAX_REPLAY_US), value)
    for value in exposed:
        found.add(Metric("exposed waits, share of the recorded time", "%"), value)
    for value in naive:
        found.add(Metric("error of the naive rule, which counts waits twice", "%"), value)
    for trace in traces:
        error = 100 * abs(replay(trace).span / measured_span(trace) - 1)
        found.add(Metric("error of the replay, which counts waits once", "%", target=0.01), error)
