"""Tests of `convoy topology export`: the InfraGraph of a cluster, and the network that it becomes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from infragraph import Infrastructure
from infragraph.infragraph_service import InfraGraphService
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.topology import export
from convoy.cli.topology.cluster import Host, Measured
from convoy.cli.topology.cluster import export as export_hosts
from convoy.cli.topology.network import GIB, LinkSetting, infrastructure
from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.nodehealth import NodeHealth

PAIRS = {("a", "b"): 1000.0, ("b", "c"): 1500.0, ("a", "d"): 800.0, ("c", "d"): 1200.0}
RACK = [Host(name, "z1", "r1") for name in "abcd"]


def network(hosts: list[Host], measured: Measured, settings: dict[str, LinkSetting] | None = None) -> Any:
    """Return the fabric of an exported cluster."""
    found = export_hosts(hosts, measured)
    body = {"infrastructure": found.infrastructure, "annotations": found.annotations}
    return infrastructure(body, settings or {}).fabric


def described(fabric: Any, source: int, target: int) -> list[tuple[str, float]]:
    """Return the node after each hop, and the bandwidth of the hop in MB/s."""
    route = fabric.route(source, target)
    return [(fabric.name(link.end), pytest.approx(link.bandwidth * GIB / 1e6)) for link in route]


def test_a_measured_rack_is_a_star_with_the_best_bandwidth_of_each_host() -> None:
    found = export_hosts(RACK, Measured(PAIRS))
    assert found.missing == ()
    fabric = network(RACK, Measured(PAIRS))
    assert fabric.ranks == 4
    assert described(fabric, 0, 3) == [("rack.0.switch.0", 1000.0), ("host.3.cpu.0", 1200.0)]
    assert described(fabric, 1, 2) == [("rack.0.switch.0", 1500.0), ("host.2.cpu.0", 1500.0)]
    (cable, *_) = found.infrastructure["links"]
    assert cable["description"] == "best pair test of a, with b"
    labels = {"node": "a", "zone": "z1", "rack": "r1"}
    attributes = [{"attribute": key, "value": value} for key, value in labels.items()]
    assert found.annotations["nodes"][0] == {"name": "host.0", "attributes": attributes}


def test_links_that_nobody_measured_have_no_bandwidth_and_are_named() -> None:
    hosts = [Host("a", "z1", "r1"), Host("b", "z1", "r2"), Host("c", "z2"), Host("d")]
    found = export_hosts(hosts, Measured({("a", "b"): 1000.0}))
    assert sorted(found.missing) == [
        "link host-uplink has no bandwidth, of hosts without a pair test: sweep tier L2",
        "link rack-uplink has no bandwidth, of each rack: no test measures what its hosts share",
        "link zone-uplink has no bandwidth, of each zone: no test measures what its hosts share",
    ]
    body = {"infrastructure": found.infrastructure, "annotations": found.annotations}
    with pytest.raises(InvalidInput, match="per second: host-uplink, rack-uplink, zone-uplink; give them"):
        infrastructure(body, {})
    settings = {f"{kind}-uplink": LinkSetting(10.0, 500.0) for kind in ("host", "rack", "zone")}
    fabric = infrastructure(body, settings).fabric
    # The node without a zone and a rack comes first.
    assert [fabric.name(rank) for rank in range(4)] == [f"host.{rank}.cpu.0" for rank in range(4)]
    assert [name for name, _ in described(fabric, 1, 2)] == [
        "rack.0.switch.0", "zone.0.switch.0", "rack.1.switch.0", "host.2.cpu.0",
    ]  # fmt: skip
    assert [name for name, _ in described(fabric, 0, 3)] == [
        "core.0.switch.0", "zone.1.switch.0", "host.3.cpu.0",
    ]  # fmt: skip


def test_hosts_with_accelerators_have_the_links_of_their_hardware_class() -> None:
    inside = {"hc": {"pcie-h2d": 26.0, "pcie-d2h": 24.0, "nvlink": 200.0}}
    hosts = [Host(name, rack="r", accelerators=2, hardware_class="hc") for name in "ab"]
    hosts += [Host("c", rack="r", accelerators=2, hardware_class="other"), Host("d", rack="r")]
    measured = Measured({("a", "b"): 10_000.0, ("c", "d"): 5_000.0}, inside)
    found = export_hosts(hosts, measured)
    assert found.missing == (
        "link pcie-host-2xpu-2 has no bandwidth, between accelerators and network card of host-2xpu-2: "
        "sweep tier L1",
    )
    fabric = network(hosts, measured, {"pcie-host-2xpu-2": LinkSetting(20.0)})
    # Two accelerators in each of three hosts, and the host without any.
    assert fabric.ranks == 7
    assert described(fabric, 0, 1) in (
        [("host-2xpu.0.nvlink.0", 200_000.0), ("host-2xpu.0.xpu.1", 200_000.0)],
        [("host-2xpu.0.nic.0", 24_000.0), ("host-2xpu.0.xpu.1", 24_000.0)],
    )
    assert described(fabric, 0, 2) == [
        ("host-2xpu.0.nic.0", 24_000.0),
        ("rack.0.switch.0", 10_000.0),
        ("host-2xpu.1.nic.0", 10_000.0),
        ("host-2xpu.1.xpu.0", 24_000.0),
    ]
    assert described(fabric, 6, 5)[1:3] == [
        ("host-2xpu-2.0.nic.0", 5_000.0),
        ("host-2xpu-2.0.xpu.1", pytest.approx(20.0 * GIB / 1e6)),
    ]


def sweep(name: str, at: str | None, *pairs: tuple[str, str, float]) -> HealthSweep:
    """Return a sweep that ended at a time and measured pairs."""
    listed = [{"node": first, "partner": second, "bandwidthMBps": value} for first, second, value in pairs]
    status = {"pairs": listed, **({"completionTime": at} if at else {})}
    return HealthSweep.model_validate({"metadata": {"name": name}, "spec": {}, "status": status})


def test_the_newest_sweep_of_a_pair_counts() -> None:
    found = export.newest_pairs(
        [
            sweep("new", "2026-01-02T00:00:00Z", ("a", "b", 2.0)),
            sweep("old", "2026-01-01T00:00:00Z", ("a", "b", 1.0), ("a", "c", 3.0), ("b", "c", 0.0)),
            sweep("running", None, ("a", "d", 4.0)),
        ]
    )
    assert found == {("a", "b"): 2.0, ("a", "c"): 3.0}


def hardware_class() -> HardwareClass:
    """Return a class with rows of the accelerators of the hardware `hw-a`."""
    row = {"name": "hw-a/0", "at": "2026-01-01T00:00:00Z", "levels": [23.0, 25.0, 26.0]}
    metrics = [
        {"name": "pcie-h2d", "recent": [row]},
        {"name": "pcie-d2h", "median": 24.0, "recent": [row]},
        {"name": "gemm", "median": 900.0},
        {"name": "nvlink"},
    ]
    return HardwareClass.model_validate({"metadata": {"name": "hc"}, "status": {"metrics": metrics}})


def listing(*found: Any) -> Any:
    """Return a collection of the client."""
    return SimpleNamespace(list=lambda **_: list(found))


def node(name: str, accelerators: str, **labels: str) -> Any:
    """Return a node of the API server."""
    names = {"zone": "topology.kubernetes.io/zone", "rack": "example.com/rack"}
    return SimpleNamespace(
        metadata=SimpleNamespace(name=name, labels={names[key]: value for key, value in labels.items()}),
        status=SimpleNamespace(allocatable={"cpu": "8", "nvidia.com/gpu": accelerators}),
    )


def test_the_command_writes_a_file_that_the_package_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def nodes(**options: Any) -> Any:
        asked.update(options)
        return SimpleNamespace(items=[node("a", "2", zone="z", rack="r"), node("b", "0", zone="z", rack="r")])

    health = NodeHealth.model_validate({"metadata": {"name": "hw-a"}, "status": {"nodeRef": {"name": "a"}}})
    client = SimpleNamespace(
        api=SimpleNamespace(
            core=SimpleNamespace(list_node=nodes), call=lambda verb, **options: verb(**options)
        ),
        node_healths=listing(health),
        hardware_classes=listing(hardware_class()),
        health_sweeps=listing(sweep("s", "2026-01-01T00:00:00Z", ("a", "b", 1100.0))),
    )
    monkeypatch.setattr(export, "connect", lambda *_: client)
    result = CliRunner().invoke(
        app, ["topology", "export", "-l", "pool=x", "--rack-label", "example.com/rack"]
    )
    assert result.exit_code == 0, result.output
    assert asked["label_selector"] == "pool=x" and result.stderr == ""
    body = yaml.safe_load(result.stdout)
    service = InfraGraphService()
    service.set_graph(Infrastructure().deserialize(body["infrastructure"]))
    assert sorted(service.get_networkx_graph().nodes) == [
        "host-2xpu.0.nic.0", "host-2xpu.0.xpu.0", "host-2xpu.0.xpu.1", "host.0.cpu.0", "rack.0.switch.0",
    ]  # fmt: skip
    fabric = infrastructure(body, {}).fabric
    assert described(fabric, 0, 2) == [
        ("host-2xpu.0.nic.0", 24_000.0), ("rack.0.switch.0", 1100.0), ("host.0.cpu.0", 1100.0),
    ]  # fmt: skip


def test_no_node_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "connect", lambda *_: None)
    monkeypatch.setattr(export, "read_hosts", lambda *_: [])
    result = CliRunner().invoke(app, ["topology", "export"])
    assert result.exit_code == 1 and "error: no node matches the selector" in result.output
