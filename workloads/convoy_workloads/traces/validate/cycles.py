"""Cycles of dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convoy_workloads.traces.order import ordered
from convoy_workloads.traces.wire.chakra_pb2 import Node

Needs = dict[int, set[int]]
"""The nodes that each node depends on, by ids."""


def cycles(nodes: Sequence[Node]) -> Iterator[list[int]]:
    """Yield one cycle of ids for each group of nodes that all depend on each other.

    A cycle begins with its smallest id; each node depends on the next. Unknown dependencies are left out.
    """
    needs: Needs = {node.id: set() for node in nodes}
    for node in nodes:
        needs[node.id].update(one for one in (*node.data_deps, *node.ctrl_deps) if one in needs)
    _, rest = ordered(needs)
    for component in _components(rest):
        begin = min(component)
        if len(component) > 1 or begin in needs[begin]:
            yield _cycle(begin, component, needs)


def _cycle(begin: int, component: set[int], needs: Needs) -> list[int]:
    """Return a cycle in a component, from its smallest id. Each node of a component needs one of it."""
    path: list[int] = []
    places: dict[int, int] = {}
    node = begin
    while node not in places:
        places[node] = len(path)
        path.append(node)
        node = min(needs[node] & component)
    cycle = path[places[node] :]
    first = cycle.index(min(cycle))
    return [*cycle[first:], *cycle[:first]]


def _components(needs: Needs) -> Iterator[set[int]]:
    """Yield the strongly connected components (Tarjan's algorithm, without recursion)."""
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack = set[int]()
    for root in sorted(needs):
        calls = [] if root in numbers else [(root, iter(sorted(needs[root])))]
        while calls:
            node, rest = calls[-1]
            if node not in numbers:
                numbers[node] = lowest[node] = len(numbers)
                stack.append(node)
                on_stack.add(node)
            for needed in rest:
                if needed not in numbers:
                    calls.append((needed, iter(sorted(needs[needed]))))
                    break
                if needed in on_stack:
                    lowest[node] = min(lowest[node], numbers[needed])
            else:
                calls.pop()
                if calls:
                    lowest[calls[-1][0]] = min(lowest[calls[-1][0]], lowest[node])
                if lowest[node] == numbers[node]:
                    component = set[int]()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    yield component
