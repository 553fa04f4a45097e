"""Annotations of an InfraGraph: ranks of components, and bandwidth and latency of edges and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from convoy.cli.topology.expand import Expanded
from convoy_controllers.astrasim.parsing.fields import Field

RANK = "rank"
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,2})?) ?([A-Za-z]{1,8})")
_UNITS = {
    "bandwidth": {"Gbps": 1e9 / 8, "GBps": 1e9},
    "latency": {"ms": 1e6, "us": 1e3, "ns": 1.0},
}
"""Bytes per second, and ns, of each unit that the package writes."""


def ranks(field: Field, found: Expanded) -> list[str]:
    """Return the component of each rank; empty without annotations of ranks."""
    by_rank: dict[int, str] = {}
    for one in _items(field, "nodes"):
        for attribute in _items(one, "attributes"):
            if attribute["attribute"].text() != RANK:
                continue
            name, value = one["name"].text(), attribute["value"]
            if name not in found.kinds:
                raise one["name"].error(f"there is no component {name[:253]!r}")
            if not value.text().isdecimal() or not value.text().isascii() or len(value.text()) > 9:
                raise value.error("must be the number of a rank, as text")
            if (rank := int(value.text())) in by_rank:
                raise value.error(f"rank {rank} is also {by_rank[rank]}")
            by_rank[rank] = name
    for rank in range(len(by_rank)):
        if rank not in by_rank:
            raise field["nodes"].error(f"there are {len(by_rank)} ranks, but none has the number {rank}")
    if len(set(by_rank.values())) != len(by_rank):
        raise field["nodes"].error("a component has two ranks")
    return [by_rank[rank] for rank in range(len(by_rank))]


def measured(field: Field, found: Expanded) -> None:
    """Give edges the bandwidth and latency of their annotations, or else of those of their links."""
    by_edge: dict[tuple[str, str], dict[str, float]] = {}
    for one in _items(field, "edges"):
        first, second = one["ep1"].text(), one["ep2"].text()
        pair = (first, second) if (first, second) in found.edges else (second, first)
        if pair not in found.edges:
            raise one.error(f"there is no edge between {first[:253]!r} and {second[:253]!r}")
        by_edge.setdefault(pair, {}).update(_changes(one))
    by_link = {one["name"].text(): _changes(one) for one in _items(field, "links")}
    for pair, wire in found.edges.items():
        changes = by_edge.get(pair, by_link.get(wire.name, {}))
        found.edges[pair] = replace(
            wire,
            bandwidth=changes.get("bandwidth", wire.bandwidth),
            latency=changes.get("latency", wire.latency),
        )


def _changes(field: Field) -> dict[str, float]:
    changes = {}
    for attribute in _items(field, "attributes"):
        name = attribute["attribute"].text()
        if name in _UNITS:
            value = attribute["value"]
            match = _QUANTITY.fullmatch(value.text())
            if match is None or match[2] not in _UNITS[name]:
                if match is not None and match[2] == "GT":
                    continue
                raise value.error(
                    f"must be a number and {' or '.join(_UNITS[name])}, is {value.text()[:60]!r}"
                )
            number = Field(float(match[1]), value.path).number(above=0 if name == "bandwidth" else None)
            changes[name] = number * _UNITS[name][match[2]]
    return changes


def _items(field: Field, name: str) -> Iterator[Field]:
    if field.has(name):
        yield from field[name].items()
