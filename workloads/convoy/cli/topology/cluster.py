"""The InfraGraph of a cluster: hosts, racks and zones, with the bandwidths that Convoy's agents measured.

A host is linked to the switch of its rack, a rack to its zone, and zones to a core switch. The agents do not
measure what the hosts of a rack or zone share, so these links have no bandwidth. A host's link has the
bandwidth of its best pair test: the network may carry more than one connection does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ZONE_LABEL = "topology.kubernetes.io/zone"
RACK_LABEL = "topology.kubernetes.io/rack"
CORE = "core"
Places = tuple[tuple[str, str], ...]
"""Kind and name of each place around a host, the largest one first."""


@dataclass(frozen=True, slots=True)
class Host:
    """A node of the cluster."""

    name: str
    zone: str = ""
    rack: str = ""
    accelerators: int = 0
    hardware_class: str = ""
    """Name of the node's HardwareClass; empty while it is unknown."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The agents' measurements."""

    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """MB/s between two nodes, with MB = 10^6 bytes."""
    inside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """GB/s of each metric such as `pcie-h2d`, with GB = 10^9 bytes, by HardwareClass."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An InfraGraph, and what is missing in it."""

    infrastructure: Any
    annotations: Any
    missing: tuple[str, ...]
    """A message for each group of links whose bandwidth nobody has measured."""


def export(hosts: Sequence[Host], measured: Measured, name: str = "cluster") -> Exported:
    """Return the InfraGraph of a cluster. The ranks are the accelerators, or the hosts without any."""
    return _Export(sorted(hosts, key=lambda one: (one.zone, one.rack, one.name)), measured).run(name)


class _Export:
    def __init__(self, hosts: Sequence[Host], measured: Measured) -> None:
        self._hosts = hosts
        self._measured = measured
        self._best = _best_of_each(measured.pairs)
        self._devices: dict[tuple[Any, ...], Any] = {}
        """Devices by what makes them differ."""
        self._counts: dict[str, int] = {}
        """Number of copies of each device, which is also the name of its instance."""
        self._links: dict[str, Any] = {}
        self._edges: list[Any] = []
        self._notes: list[Any] = []
        self._switches: dict[Places, str] = {}
        self._root = _common([_places(one) for one in hosts])
        """The place that holds all hosts. Its switch has no uplink."""
        self._missing: dict[str, str] = {}

    def run(self, name: str) -> Exported:
        ranks = 0
        for host in self._hosts:
            device, components = self._device(host)
            copy = self._copy(device)
            labels = {"node": host.name, "zone": host.zone, "rack": host.rack}
            self._note(copy, {key: value for key, value in labels.items() if value})
            for component in components:
                self._note(f"{copy}.{component}", {"rank": str(ranks)})
                ranks += 1
            self._connect_host(host, copy, "nic" if host.accelerators else "cpu")
        body = {
            "name": name,
            "description": "Nodes of a Kubernetes cluster with bandwidths that Convoy measured",
            "devices": list(self._devices.values()),
            "links": list(self._links.values()),
            "instances": [
                {"name": device, "device": device, "count": count} for device, count in self._counts.items()
            ],
            "edges": self._edges,
        }
        return Exported(body, {"nodes": self._notes}, tuple(self._missing.values()))

    def _device(self, host: Host) -> tuple[str, list[str]]:
        """Return the device of a host, and the names of the components that are ranks."""
        if not host.accelerators:
            return self._add_device(("host",), "host", [("cpu", "cpu", 1)]), ["cpu.0"]
        key = "host", host.accelerators, host.hardware_class
        if key not in self._devices:
            kinds = sum(one[:2] == key[:2] for one in self._devices)
            name = f"host-{host.accelerators}xpu" + (f"-{kinds + 1}" if kinds else "")
            self._add_device(key, name, [("xpu", "xpu", host.accelerators), ("nic", "nic", 1)])
            self._add_inner_links(self._devices[key], host)
        return self._devices[key]["name"], [f"xpu.{one}" for one in range(host.accelerators)]

    def _add_device(self, key: tuple[Any, ...], name: str, components: Sequence[tuple[str, str, int]]) -> str:
        listed = [{"name": one, "choice": kind, "count": count} for one, kind, count in components]
        self._devices.setdefault(key, {"name": name, "components": listed, "links": [], "edges": []})
        return name

    def _add_inner_links(self, device: Any, host: Host) -> None:
        """Add the links between accelerators, and between them and the network card."""
        values = self._measured.inside.get(host.hardware_class, {})
        copies = [values[one] for one in ("pcie-h2d", "pcie-d2h") if one in values]
        pcie = f"pcie-{device['name']}"
        device["links"].append(_link(pcie, 8 * min(copies) if copies else None, "copies from and to memory"))
        device["edges"].append(_edge({"component": "xpu"}, {"component": "nic"}, pcie))
        if not copies:
            self._miss(pcie, f"between accelerators and network card of {device['name']}: sweep tier L1")
        if "nvlink" in values and host.accelerators > 1:
            name = f"nvlink-{device['name']}"
            # A switch gives each accelerator the measured bandwidth once, not once for each other one.
            device["components"].append({"name": "nvlink", "choice": "switch", "count": 1})
            device["links"].append(_link(name, 8 * values["nvlink"], "copies to the next accelerator"))
            device["edges"].append(_edge({"component": "xpu"}, {"component": "nvlink"}, name))

    def _connect_host(self, host: Host, copy: str, component: str) -> None:
        best = self._best.get(host.name)
        name = "host-uplink" if best is None else f"uplink-{copy.replace('.', '-')}"
        if best is None:
            self._links.setdefault(name, _link(name, None, "not measured"))
            self._miss(name, "of hosts without a pair test: sweep tier L2")
        else:
            megabytes, partner = best
            words = f"best pair test of {host.name}, with {partner}"
            self._links[name] = _link(name, megabytes * 8 / 1000, words)
        self._connect(_end(copy, component), name, _places(host))

    def _connect(self, below: Any, link: str, places: Places) -> None:
        """Connect a host or a switch with the switch of its place, and that one with the place around it."""
        known = self._switches.get(places)
        if known is None:
            kind = places[-1][0] if places else CORE
            known = self._copy(self._add_device((kind,), kind, [("switch", "switch", 1)]))
            self._switches[places] = known
            self._note(known, dict(places))
            if places != self._root:
                uplink = f"{kind}-uplink"
                self._links.setdefault(uplink, _link(uplink, None, "not measured"))
                self._connect(_end(known, "switch"), uplink, places[:-1])
                self._miss(uplink, f"of each {kind}: no test measures what its hosts share")
        self._edges.append(_edge(below, _end(known, "switch"), link))

    def _copy(self, device: str) -> str:
        """Return the name of the next copy of a device."""
        number = self._counts.get(device, 0)
        self._counts[device] = number + 1
        return f"{device}.{number}"

    def _note(self, name: str, attributes: Mapping[str, str]) -> None:
        if not attributes:
            return
        listed = [{"attribute": key, "value": value} for key, value in attributes.items()]
        self._notes.append({"name": name, "attributes": listed})

    def _miss(self, link: str, words: str) -> None:
        self._missing.setdefault(link, f"link {link} has no bandwidth, {words}")


def _places(host: Host) -> Places:
    """Return the places around a host, the largest one first."""
    return tuple((kind, name) for kind, name in (("zone", host.zone), ("rack", host.rack)) if name)


def _common(all_places: Sequence[Places]) -> Places:
    """Return the smallest place that holds all hosts; empty for none."""
    first = all_places[0] if all_places else ()
    size = 0
    while size < len(first) and all(one[: size + 1] == first[: size + 1] for one in all_places):
        size += 1
    return first[:size]


def _best_of_each(pairs: Mapping[tuple[str, str], float]) -> dict[str, tuple[float, str]]:
    """Return the best bandwidth of each node in MB/s, and the partner."""
    found: dict[str, tuple[float, str]] = {}
    for (first, second), value in sorted(pairs.items()):
        for node, partner in ((first, second), (second, first)):
            if value > found.get(node, (0.0, ""))[0]:
                found[node] = value, partner
    return found


def _link(name: str, gigabits: float | None, description: str) -> Any:
    """Return a link. `gigabits`: Gbit/s; None if the bandwidth is not known."""
    found: dict[str, Any] = {"name": name, "description": description}
    if gigabits is not None:
        found["physical"] = {"bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": gigabits}}
    return found


def _edge(first: Any, second: Any, link: str) -> Any:
    return {"ep1": first, "ep2": second, "scheme": "many2many", "link": link}


def _end(copy: str, component: str) -> Any:
    """Return the endpoint of a copy such as `host.3`."""
    device, number = copy.split(".")
    return {"instance": f"{device}[{number}]", "component": f"{component}[0]"}
