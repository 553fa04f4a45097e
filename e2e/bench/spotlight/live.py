"""The part `live`: regroups, copies of weights and degrees, with real workers in a machine of their own.

Machines are namespaces of this one (e2e/drive/machines.py), so "over the network" is a virtual cable.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import quantiles

from convoy_workloads.bench.figures import Figures, Metric
from e2e.drive import machines

SLOTS = 4
PARAMS = {
    "workers": "ray",
    "live": {"slots": SLOTS, "storeMebibytes": 160},
    "problem": {"kind": "grid", "side": 8, "prompts": 8, "width": 256, "heads": 8, "layers": 8},
    "samplerSteps": 4,
    "sequenceParallel": [1, 2, 4],
}
"""About 6 million weights, so that copies of them take time."""
LEAST_GAIN = 50.0


def live(found: Figures) -> None:
    """Measure with four workers in one machine, and the driver in another one."""
    if not machines.allowed():
        found.add_unmeasured(Metric("regroup, warm: p50", "seconds"), "needs the right to create namespaces")
        return
    with tempfile.TemporaryDirectory() as name, machines.network(2) as (head, spot):
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "key").write_text("a" * 64 + "\n")
        place = [{"rank": 0, "address": head.address}]
        (folder / "members.json").write_text(json.dumps({"incarnation": 1, "members": place}))
        common = {
            "CONVOY_JOB_KEY_FILE": str(folder / "key"),
            "CONVOY_PARAMS": json.dumps(PARAMS),
            "CONVOY_HOME": "/mnt",
            "TMPDIR": "/mnt",
            "OMP_NUM_THREADS": "1",
        }
        engine = machines.python("-m", "convoy_workloads.engines.spotlight.engine")
        spot.start(engine, folder / "spot.log", CONVOY_MEMBERS_FILE=str(folder / "members.json"), **common)
        words = ("-m", "e2e.bench.spotlight.live_driver")
        own = {**common, "MASTER_ADDR": head.address, "PYTHONPATH": str(Path(__file__).parents[3])}
        heard = machines.Driver(head, folder / "driver.log", *words, **own).read()
    _add(found, heard)


def _add(found: Figures, heard: dict[str, object]) -> None:
    numbers = {name: _floats(heard[name]) for name in ("warm", "cold", "network", "local")}
    for name in ("warm", "cold"):
        middle, high = _percentile(numbers[name], 50), _percentile(numbers[name], 99)
        found.add(Metric(f"regroup, {name}: p50", "seconds"), middle)
        found.add(Metric(f"regroup, {name}: p99", "seconds"), high)
    for percent in (50, 99):
        gain = _percentile(numbers["cold"], percent) / _percentile(numbers["warm"], percent)
        name = f"regroup, cold / warm: p{percent}"
        found.add(Metric(name, "ratio", LEAST_GAIN, higher_is_better=True), gain)
    found.add(Metric("bytes of the weights", "bytes"), float(str(heard["bytes"])))
    for name, words in (("network", "over the network"), ("local", "within a node")):
        found.add(Metric(f"copy of the weights {words}: p50", "seconds"), _percentile(numbers[name], 50))
    differences = heard["differences"]
    assert isinstance(differences, dict)
    for degree, value in differences.items():
        name = f"equality: largest difference of a sample with degree {degree} from degree 1"
        found.add(Metric(name, "pixel value", 1e-5), float(value))
    found.add(
        Metric("equality: samples of all degrees have the same bits", "1 = yes"),
        float(bool(heard["sameBits"])),
    )


def _floats(values: object) -> list[float]:
    assert isinstance(values, list)
    return [float(one) for one in values]


def _percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    figures = Figures()
    live(figures)
    for metric in figures.metrics:
        print(json.dumps(figures.row(metric)))
