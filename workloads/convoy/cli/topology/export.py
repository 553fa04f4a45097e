"""The command export, which writes the InfraGraph of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Annotated, Any

import typer

from convoy.cli.cluster import Context, Failure, connect
from convoy.cli.topology.cluster import RACK_LABEL, ZONE_LABEL, Exported, Host, Measured
from convoy.cli.topology.cluster import export as export_hosts
from convoy.cli.topology.document import written
from convoy.client import Client
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep

MOST_NODES = 5000
_ACCELERATOR = re.compile(r"[a-z0-9.-]+/(gpu|xpu|npu|tpu)")
"""Resources that count accelerators, such as nvidia.com/gpu and amd.com/gpu."""
INSIDE = ("pcie-h2d", "pcie-d2h", "nvlink")
"""Metrics of HardwareClasses that show links within a host."""


def export(
    selector: Annotated[
        str | None,
        typer.Option("--selector", "-l", metavar="LABELS", help="Labels of the nodes. Default: all nodes."),
    ] = None,
    rack_label: Annotated[
        str, typer.Option(metavar="LABEL", help="Label that names a node's rack.")
    ] = RACK_LABEL,
    context: Context = None,
) -> None:
    """Write the InfraGraph of the cluster's nodes as YAML.

    Zones and racks come from the nodes' labels, bandwidths from HealthSweeps and HardwareClasses. Messages
    on stderr name links without a measurement; such a link has no bandwidth in the file.
    """
    client = connect(None, context)
    hosts = read_hosts(client, selector, rack_label)
    if not hosts:
        raise Failure("no node matches the selector")
    found: Exported = export_hosts(hosts, read_measured(client))
    for message in found.missing:
        typer.echo(message, err=True)
    typer.echo(written(found.infrastructure, found.annotations), nl=False)


def read_hosts(client: Client, selector: str | None, rack_label: str) -> list[Host]:
    """Return the nodes with these labels. Raises Failure if there are too many."""
    api = client.api
    nodes = api.call(api.core.list_node, label_selector=selector or "", limit=MOST_NODES + 1).items
    if len(nodes) > MOST_NODES:
        raise Failure(f"more than {MOST_NODES} nodes match: select fewer with --selector")
    hardware = {one.status.node_ref.name: one.metadata.name for one in client.node_healths.list()}
    classes = _classes_of(client.hardware_classes.list())
    return [
        Host(
            name=one.metadata.name,
            zone=(one.metadata.labels or {}).get(ZONE_LABEL, ""),
            rack=(one.metadata.labels or {}).get(rack_label, ""),
            accelerators=_accelerators(one.status.allocatable or {}),
            hardware_class=classes.get(hardware.get(one.metadata.name, ""), ""),
        )
        for one in nodes
    ]


def read_measured(client: Client) -> Measured:
    """Return the measurements that HealthSweeps and HardwareClasses have stored."""
    return Measured(newest_pairs(client.health_sweeps.list()), inside_links(client.hardware_classes.list()))


def newest_pairs(sweeps: Iterable[HealthSweep]) -> dict[tuple[str, str], float]:
    """Return the bandwidth of each pair in MB/s, from the newest sweep that tested it."""
    found: dict[tuple[str, str], float] = {}
    dated = [(one.status.completion_time, one) for one in sweeps if one.status.completion_time is not None]
    for _, sweep in sorted(dated, key=lambda one: (one[0], one[1].metadata.name)):
        found |= {(one.node, one.partner): one.bandwidth for one in sweep.status.pairs if one.bandwidth > 0}
    return found


def inside_links(classes: Iterable[HardwareClass]) -> dict[str, dict[str, float]]:
    """Return the GB/s of the links within hosts, by HardwareClass and metric: the median of the class."""
    found: dict[str, dict[str, float]] = {}
    for one in classes:
        for metric in one.status.metrics:
            middles = [median(row.levels) for row in metric.recent if row.levels]
            value = metric.median if metric.median is not None else median(middles) if middles else None
            if metric.name in INSIDE and value is not None and value > 0:
                found.setdefault(one.metadata.name, {})[metric.name] = value
    return found


def _classes_of(classes: Iterable[HardwareClass]) -> dict[str, str]:
    """Return the HardwareClass of each NodeHealth."""
    return {
        row.name.partition("/")[0]: one.metadata.name
        for one in classes
        for metric in one.status.metrics
        for row in metric.recent
    }


def _accelerators(resources: Mapping[str, Any]) -> int:
    counts = [str(count) for name, count in resources.items() if _ACCELERATOR.fullmatch(name)]
    return sum(int(one) for one in counts if one.isdecimal())
