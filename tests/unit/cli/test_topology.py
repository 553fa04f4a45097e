"""Tests of InfraGraph files: the expansion against the package's own service, and bad files."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from infragraph import Annotation, GraphRequest, Infrastructure
from infragraph.infragraph_service import InfraGraphService
from typer import Exit

from convoy.cli.topology import document, expand
from convoy.cli.topology.expand import expand as expanded
from convoy.cli.topology.network import GIB, LinkSetting, infrastructure
from convoy_controllers.astrasim.parsing.fields import Field, InvalidInput

from .infrastructures import BLUEPRINTS

UNITS = {"Gbps": 1e9 / 8, "GBps": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


def service(body: Infrastructure) -> InfraGraphService:
    """Return the package's service with an infrastructure."""
    found = InfraGraphService()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.set_graph(body)
    return found


def stated(text: str | None) -> float | None:
    """Return a quantity of the package's graph, such as `100 Gbps`; None for a unit without bytes."""
    number, unit = (text or "0 GT/s").split()
    return float(number) * UNITS[unit] if unit in UNITS else None


@pytest.mark.parametrize("name", BLUEPRINTS)
def test_the_expansion_is_that_of_the_package(name: str) -> None:
    body = BLUEPRINTS[name]()
    graph = service(body).get_networkx_graph()
    found = expanded(Field(body.serialize("dict"), ""))
    assert found.kinds == {node: facts["type"] for node, facts in graph.nodes(data=True)}
    assert len(found.edges) == graph.number_of_edges() > 0
    for pair, wire in found.edges.items():
        facts = graph.edges[pair]
        assert wire.name == facts["link"]
        assert (wire.bandwidth, wire.latency) == (
            stated(facts.get("bandwidth")),
            stated(facts.get("latency")),
        )


def test_the_ranks_are_the_accelerators_in_their_order() -> None:
    body = BLUEPRINTS["single tier"]().serialize("dict")
    settings = {name: LinkSetting(50.0, 100.0) for name in ("pcie", "fabric", "nvlink", "ic")}
    found = infrastructure(body, settings)
    fabric = found.fabric
    assert fabric.ranks == 12 and found.without_latency == ("switch-link",)
    assert [fabric.name(rank) for rank in (0, 4, 11)] == [
        "server.0.xpu.0",
        "server.1.xpu.0",
        "server.2.xpu.3",
    ]
    inside = [fabric.name(link.end) for link in fabric.route(0, 1)]
    assert len(inside) == 2 and inside[1] == "server.0.xpu.1"
    between = fabric.route(0, 4)
    assert [fabric.name(link.end).split(".")[2] for link in between] == [
        "pciesw", "nic", "port", "asic", "port", "nic", "pciesw", "xpu",
    ]  # fmt: skip
    assert between[2].bandwidth == pytest.approx(12.5e9 / GIB) and between[2].latency == 0
    assert (between[0].bandwidth, between[0].latency) == (50.0, 100.0)


def test_links_without_a_bandwidth_are_named() -> None:
    body = BLUEPRINTS["single tier"]().serialize("dict")
    with pytest.raises(InvalidInput) as caught:
        infrastructure(body, {"ic": LinkSetting(1.0)})
    assert str(caught.value).startswith(
        "infrastructure.links: no bandwidth in bits or bytes per second: fabric, nvlink, pcie; give"
    )
    with pytest.raises(InvalidInput, match=r"infrastructure\.links: no edge uses a link 'ethernet'"):
        infrastructure(body, {"ethernet": LinkSetting(1.0)})


def test_annotations_of_the_package_s_service_are_read() -> None:
    graph = service(BLUEPRINTS["single tier"]())
    note = Annotation()
    for rank in range(6):
        node = note.nodes.add(name=f"server.{rank % 3}.xpu.{rank // 3}")
        node.attributes.add(attribute="rank", value=str(rank))
    for link in ("pcie", "fabric", "nvlink", "ic"):
        note.links.add(name=link).attributes.add(attribute="bandwidth", value="400 Gbps")
    for card in range(4):
        edge = note.edges.add(ep1=f"switch.0.port.{card}", ep2=f"server.0.nic.{card}")
        edge.attributes.add(attribute="bandwidth", value="3 GBps")
        edge.attributes.add(attribute="latency", value="2 us")
    graph.annotate_graph(note)
    request = GraphRequest()
    request.infragraph.annotations.choice = "full"
    fabric = infrastructure(json.loads(graph.get_graph(request)), {}).fabric
    assert fabric.ranks == 6 and fabric.name(1) == "server.1.xpu.0"
    slow = [link for link in fabric.route(0, 1) if link.latency]
    assert [(link.bandwidth, link.latency) for link in slow] == [(pytest.approx(3e9 / GIB), 2000.0)]
    assert fabric.route(0, 3)[0].bandwidth == pytest.approx(50e9 / GIB)


BODY: Any = {
    "name": "small",
    "devices": [
        {
            "name": "host",
            "components": [
                {"name": "xpu", "choice": "xpu", "count": 2},
                {"name": "nic", "choice": "nic", "count": 1},
            ],
            "links": [{"name": "pcie", "physical": {"bandwidth": {"gigabytes_per_second": 32.0}}}],
            "edges": [
                {
                    "ep1": {"component": "xpu"},
                    "ep2": {"component": "nic[0]"},
                    "scheme": "many2many",
                    "link": "pcie",
                }
            ],
        },
        {
            "name": "rack",
            "components": [{"name": "switch", "choice": "switch", "count": 1}],
            "links": [],
            "edges": [],
        },
    ],
    "links": [
        {
            "name": "cable",
            "physical": {"bandwidth": {"gigabits_per_second": 100.0}, "latency": {"us": 1.5}},
        }
    ],
    "instances": [
        {"name": "host", "device": "host", "count": 2},
        {"name": "rack", "device": "rack", "count": 1},
    ],
    "edges": [
        {
            "ep1": {"instance": "host", "component": "nic"},
            "ep2": {"instance": "rack[0]", "component": "switch[0]"},
            "scheme": "many2many",
            "link": "cable",
        }
    ],
}


def changed(path: str, value: Any) -> Any:
    """Return the body with another value at a path; None removes the field."""
    found = copy.deepcopy(BODY)
    *parents, last = [int(one) if one.isdigit() else one for one in path.split("/")]
    target = found
    for one in parents:
        target = target[one]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return found


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("instances/0/device", "hosts", "instances[0].device: there is no device 'hosts'"),
        ("instances/0/count", 0, "instances[0].count: must be from 1 to 2147483647, is 0"),
        ("instances/0/count", 2**31 - 1, "instances[0].count: the infrastructure may have at most 200000"),
        ("instances/1/name", "host", "instances[1].name: another instance is also named 'host'"),
        ("instances/0/name", "host.0", "instances[0].name: must be a name without indices"),
        ("devices/0/components/0/count", 2**30, "instances[0].count: the infrastructure may have at most"),
        ("devices/0/components/0/count", "2", "devices[0].components[0].count: must be a whole number"),
        ("devices/0/components/0/choice", "gpu", "devices[0].components[0].choice: must be one of custom"),
        ("devices/0/components/1/name", "xpu", "devices[0].components[1].name: another component is also"),
        ("devices/0/components/0/choice", "device", "devices[0].name: its component 'xpu' must be the name"),
        ("devices/1/name", "host", "devices[1].name: another device is also named 'host'"),
        ("devices/1/components/0", {"name": "rack", "choice": "device", "count": 1}, "devices[1].name: the"),
        ("devices/0/links", [], "devices[0].edges[0].link: there is no link 'pcie'"),
        ("devices/0/edges/0/ep1/component", "gpu", "devices[0].edges[0].ep1.component: device 'host' has no"),
        ("devices/0/edges/0/ep1/component", "xpu[2]", "devices[0].edges[0].ep1.component: [2] is out of"),
        ("devices/0/edges/0/ep1/component", "xpu[a]", "devices[0].edges[0].ep1.component: 'xpu[a]' is no"),
        ("devices/0/edges/0/ep1/component", "xpu[1:2:0]", "devices[0].edges[0].ep1.component: [1:2:0] is no"),
        ("devices/0/edges/0/ep1/component", "xpu.nic", "devices[0].edges[0].ep1.component: device 'xpu' has"),
        ("devices/0/edges/0/scheme", "ring", "devices[0].edges[0].scheme: must be one2one or many2many"),
        ("edges/0/ep1/instance", "hosts[0]", "edges[0].ep1.instance: there is no instance 'hosts'"),
        ("edges/0/ep1/instance", "host[2]", "edges[0].ep1.instance: [2] is out of range: there are 2"),
        ("edges/0/ep2/component", None, "edges[0].ep2.component: is required"),
        ("edges/0/link", "wire", "edges[0].link: there is no link 'wire'"),
        ("edges", [], "infrastructure.edges: there is no way from rank 0 (host.0.xpu.0) to rank 2 (host.1"),
        ("links/0/name", 1, "links[0].name: must be text, is 1"),
        (
            "links/0/physical/bandwidth/gigabits_per_second",
            0,
            "links[0].physical.bandwidth.gigabits_per_second: must be above 0, is 0",
        ),
        (
            "links/0/physical/bandwidth/gigabits_per_second",
            float("nan"),
            "links[0].physical.bandwidth.gigabits_per_second: must be at most",
        ),
        (
            "links/0/physical/bandwidth/gigabits_per_second",
            1e-9,
            "infrastructure.links: the bandwidth of",
        ),
        (
            "links/0/physical/latency/us",
            -1,
            "links[0].physical.latency.us: must be at least 0, is -1",
        ),
        (
            "links/0/physical/bandwidth",
            {"gigatransfers_per_second": 8.0},
            "infrastructure.links: no bandwidth in bits or bytes per second: cable",
        ),
        ("name", 1, "infrastructure: is not of InfraGraph's schema: property name shall be of type"),
    ],
)
def test_an_invalid_infrastructure_is_refused_with_its_path(path: str, value: Any, message: str) -> None:
    assert infrastructure(BODY, {}).fabric.ranks == 4
    with pytest.raises(InvalidInput) as caught:
        infrastructure(changed(path, value), {})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("count", [2**31 - 1, 300_000])
def test_empty_devices_within_devices_are_bounded(count: int) -> None:
    body = changed("devices/1/components/0", {"name": "box", "choice": "device", "count": count})
    body["devices"].append({"name": "box"})
    with pytest.raises(InvalidInput, match=r"^instances\[1\]\.count: the infrastructure may have at most"):
        infrastructure(body, {})


def test_edges_are_bounded_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "MOST_EDGES", 5)
    with pytest.raises(InvalidInput, match=r"^edges\[0\]: the infrastructure may have at most 5 edges"):
        infrastructure(BODY, {})


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"rank": {"host.0.xpu.2": "0"}}, "annotations.nodes[0].name: there is no component 'host.0.xpu.2'"),
        ({"rank": {"host.0.xpu.0": "a"}}, "annotations.nodes[0].attributes[0].value: must be the number of"),
        (
            {"rank": {"host.0.xpu.0": "0", "host.0.xpu.1": "0"}},
            "annotations.nodes[1].attributes[0].value: rank 0 is also host.0.xpu.0",
        ),
        (
            {"rank": {"host.0.xpu.0": "0", "host.0.xpu.1": "2"}},
            "annotations.nodes: there are 2 ranks, but none has the number 1",
        ),
        ({"rank": {"host.0.xpu.0": "0"}}, "infrastructure: needs 2 to 65536 ranks, has 1"),
    ],
)
def test_invalid_ranks_are_refused_with_their_path(annotations: Any, message: str) -> None:
    nodes = [
        {"name": name, "attributes": [{"attribute": "rank", "value": value}]}
        for name, value in annotations["rank"].items()
    ]
    with pytest.raises(InvalidInput) as caught:
        infrastructure({"infrastructure": BODY, "annotations": {"nodes": nodes}}, {})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is neither valid JSON nor valid YAML"),
        ("[" * 1000, "has more than 32 nested lists and mappings"),
        ('{"a":' * 100_000, "is neither valid JSON nor valid YAML"),
        ("a: &a [1]\nb: *a", "may have no YAML aliases"),
        (" " * ((1 << 16) + 1), "is larger than 0 MiB"),
    ],
)
def test_a_file_that_could_exhaust_the_machine_is_refused(
    text: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(text)
    if not text.strip():
        monkeypatch.setattr(document, "MOST_BYTES", 1 << 16)
    with pytest.raises(Exit):
        document.read(path)
    assert f"error: {path}: {message}" in capsys.readouterr().err


def test_a_written_file_is_read_with_the_same_network(tmp_path: Path) -> None:
    note = {"nodes": [{"name": "host.1.xpu.0", "attributes": [{"attribute": "node", "value": "a"}]}]}
    path = tmp_path / "graph.yaml"
    path.write_text(document.written(BODY, note))
    again = document.read(path)
    assert again["annotations"] == note
    assert expanded(Field(again["infrastructure"], "")) == expanded(Field(BODY, ""))
    assert yaml.safe_load(document.written(again["infrastructure"], again["annotations"])) == again


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "infragraph", None)
    with pytest.raises(Exit):
        infrastructure(BODY, {})
    assert "pip install '.[infragraph]' in a checkout" in capsys.readouterr().err
