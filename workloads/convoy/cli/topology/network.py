"""Makes the network of a simulation from an InfraGraph.

Each edge becomes a link in both directions. The ranks are the components that annotations number, or all
components of kind `xpu` in their order. All other components pass messages on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from convoy.cli.cluster import Failure
from convoy.cli.topology import annotated
from convoy.cli.topology.devices import Wire
from convoy.cli.topology.document import check_schema, read
from convoy.cli.topology.expand import Expanded, expand
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.fabrics.graph import LinkGraph, Unreachable
from convoy_controllers.astrasim.parsing.fields import Field, InvalidInput
from convoy_controllers.astrasim.parsing.graph import LEAST_BANDWIDTH, MOST_RANKS
from convoy_controllers.astrasim.parsing.graph import bandwidth as link_bandwidth

GIB = 1 << 30
SHOWN = 8
"""Names of links that a message lists."""


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """Bandwidth and latency that a user gives for the links of a name."""

    bandwidth: float
    """GB/s, with GB = 2^30 bytes."""
    latency: float | None = None
    """ns; None for the latency in the file."""


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """The links of an InfraGraph."""

    fabric: LinkGraph
    without_latency: tuple[str, ...]
    """Names of the links that have no latency, so that the simulation uses 0 ns."""


def read_network(path: Path, links: Sequence[str]) -> Fabric:
    """Return the links of an InfraGraph file. `links`: settings such as `pcie=25` or `cable=12.5,500`.

    Raises Failure if the file or a setting is invalid.
    """
    settings = dict(map(_setting, links))
    try:
        found = infrastructure(read(path), settings)
    except InvalidInput as error:
        raise Failure(f"{path}: {error}") from error
    if found.without_latency:
        names = ", ".join(found.without_latency[:SHOWN])
        more = len(found.without_latency) - SHOWN
        names += f" and {more} more" if more > 0 else ""
        typer.echo(f"{path}: links without a latency, simulated with 0 ns: {names}", err=True)
    return found.fabric


def _setting(text: str) -> tuple[str, LinkSetting]:
    name, _, values = text.partition("=")
    try:
        bandwidth, *latency = [Field(float(one), f"--link {name}") for one in values.split(",", 1)]
    except ValueError:
        raise Failure(f"--link {text}: must be NAME=GBPS or NAME=GBPS,NS, such as pcie=25,500") from None
    try:
        return name, LinkSetting(link_bandwidth(bandwidth), latency[0].number() if latency else None)
    except InvalidInput as error:
        raise Failure(str(error)) from error


def infrastructure(body: Any, settings: Mapping[str, LinkSetting]) -> Infrastructure:
    """Return the links of a file's content. Raises InvalidInput with the path of the first invalid field."""
    file = Field(body, "")
    combined = file.has("infrastructure")
    field = file["infrastructure"] if combined else file
    found = expand(field)
    noted = file["annotations"] if combined and file.has("annotations") else Field({}, "annotations")
    numbered = annotated.ranks(noted, found)
    annotated.measured(noted, found)
    check_schema(field.value, noted.value)
    return _graph(found, numbered, settings)


def _graph(found: Expanded, numbered: list[str], settings: Mapping[str, LinkSetting]) -> Infrastructure:
    ranks = numbered or [name for name, kind in found.kinds.items() if kind == "xpu"]
    if not 2 <= len(ranks) <= MOST_RANKS:
        raise InvalidInput(
            "infrastructure",
            f"needs 2 to {MOST_RANKS} ranks, has {len(ranks)}: ranks are the components of kind xpu, or "
            f"those with the annotation {annotated.RANK}",
        )
    names = {wire.name for wire in found.edges.values()}
    for name in settings:
        if name not in names:
            raise InvalidInput("infrastructure.links", f"no edge uses a link {name!r}")
    _check_bandwidths(found, settings)
    is_rank = set(ranks)
    switches = [name for name in found.kinds if name not in is_rank]
    places = {name: place for place, name in enumerate([*ranks, *switches])}
    links = []
    silent = set()
    for (first, second), wire in found.edges.items():
        bandwidth, latency = _facts(wire, settings)
        if latency is None:
            silent.add(wire.name)
        for start, end in ((first, second), (second, first)):
            links.append(Link(places[start], places[end], bandwidth, latency or 0.0))
    try:
        fabric = LinkGraph(len(ranks), switches, links, hashes=True, names=ranks)
    except Unreachable as error:
        raise InvalidInput("infrastructure.edges", str(error)) from None
    return Infrastructure(fabric, tuple(sorted(silent)))


def _check_bandwidths(found: Expanded, settings: Mapping[str, LinkSetting]) -> None:
    missing = sorted(
        {wire.name for wire in found.edges.values() if wire.bandwidth is None and wire.name not in settings}
    )
    if missing:
        raise InvalidInput(
            "infrastructure.links",
            f"no bandwidth in bits or bytes per second: {', '.join(missing)}; give them, such as "
            f"--link {missing[0]}=25 for 25 GB/s",
        )
    for wire in found.edges.values():
        if wire.name not in settings and (wire.bandwidth or 0) < LEAST_BANDWIDTH * GIB:
            raise InvalidInput(
                "infrastructure.links",
                f"the bandwidth of {wire.name} must be at least {LEAST_BANDWIDTH:g} GB/s",
            )


def _facts(wire: Wire, settings: Mapping[str, LinkSetting]) -> tuple[float, float | None]:
    """Return the bandwidth in GB/s, with GB = 2^30 bytes, and the latency of a link."""
    given = settings.get(wire.name)
    if given is None:
        return (wire.bandwidth or 0.0) / GIB, wire.latency
    return given.bandwidth, wire.latency if given.latency is None else given.latency
