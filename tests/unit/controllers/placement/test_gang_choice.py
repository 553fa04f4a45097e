"""Tests of the choice of a gang backend, and of the names of PodGroups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controllers.placement.gang_objects import (
    PLUGINS,
    V1ALPHA2,
    V1ALPHA3,
    V1BETA1,
    VOLCANO_GROUPS,
)

from convoy_controllers.placement.gang_choice import GangRole, GangSpec, choose, gang, group_name
from convoy_controllers.placement.gang_state import written
from convoy_controllers.resources import Resource
from convoy_crds.placement import Packing
from convoy_crds.reasons.catalogue import Reasons

ALL = frozenset({V1BETA1, V1ALPHA3, PLUGINS, VOLCANO_GROUPS})
CPU: dict[str, Any] = {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}


def spec(*roles: GangRole, gang: str = "Auto", **packing: Any) -> GangSpec:
    return GangSpec(Packing.model_validate({"gang": gang, **packing}), roles or (role("worker"),))


def role(name: str, least: int = 2, most: int | None = None, **pod: Any) -> GangRole:
    return GangRole(name, pod, least, least if most is None else most)


def scheduler(name: str) -> GangSpec:
    return spec(role("worker", schedulerName=name))


@pytest.mark.parametrize(
    ("wanted", "served", "chosen"),
    [
        (spec(), ALL, "Native"),
        (spec(), {V1ALPHA2}, "Native"),
        (spec(), {PLUGINS, VOLCANO_GROUPS}, "Coscheduling"),
        (spec(), {VOLCANO_GROUPS}, "Volcano"),
        (spec(), (), None),
        (spec(gang="None"), ALL, None),
        (spec(gang="Volcano"), ALL, "Volcano"),
        (spec(gang="Coscheduling"), ALL, "Coscheduling"),
        (spec(role("worker", 1)), ALL, None),
        (spec(role("worker", 1), gang="Volcano"), ALL, None),
        (spec(role("worker", 1), role("head", 1)), ALL, "Native"),
        # A scheduler in the template decides.
        (scheduler("default-scheduler"), ALL, "Native"),
        (scheduler("volcano"), ALL, "Volcano"),
        (scheduler("scheduler-plugins-scheduler"), ALL, "Coscheduling"),
        (scheduler("mine"), ALL, None),
        # Roles that a gang cannot hold start pod by pod.
        (spec(role("a", priorityClassName="high"), role("b")), ALL, None),
        (spec(role("a", priorityClassName="high"), role("b", priorityClassName="high")), ALL, "Native"),
    ],
)
def test_the_backend_of_a_gang(wanted: GangSpec, served: frozenset[Resource], chosen: str | None) -> None:
    backend, wrong = choose(wanted, served)
    assert wrong is None and (backend.name.value if backend else None) == chosen


@pytest.mark.parametrize("name", ["Native", "Coscheduling", "Volcano"])
def test_a_named_backend_without_its_api_is_reported(name: str) -> None:
    backend, wrong = choose(spec(gang=name), ())
    assert backend is None and wrong is not None and wrong.reason is Reasons.GANG_MISSING
    assert f"spec.placement.gang: {name} needs the API scheduling." in wrong.message


@pytest.mark.parametrize(
    ("field", "values", "shown"),
    [
        ("priorityClassName", ("high", "low"), "head: high, worker: low"),
        ("priorityClassName", ("high", ""), "head: high, worker: none"),
        ("schedulerName", ("volcano", ""), "head: volcano, worker: none"),
    ],
)
def test_roles_that_a_named_backend_cannot_hold_are_reported(
    field: str, values: tuple[str, str], shown: str
) -> None:
    pods: list[dict[str, Any]] = [{field: value} for value in values]
    roles = [role(name, **pod) for name, pod in zip(("head", "worker"), pods, strict=True)]
    backend, wrong = choose(spec(*roles, gang="Native"), ALL)
    assert backend is None and wrong is not None and wrong.reason is Reasons.GANG_SPLIT
    assert f"template.spec.{field}, but they have {shown}" in wrong.message


def test_a_gang_counts_the_least_pods_of_all_roles() -> None:
    roles = (role("head", 1, **CPU), role("worker", 2, 4, **CPU))
    made = gang(spec(*roles, topologyKeys=["rack"], pack="Required"), "big-1", {})
    assert (made.least, made.least_by_role, made.elastic) == (3, {"head": 1, "worker": 2}, True)
    assert made.requests == {"cpu": 6000, "pods": 3000}
    assert made.topology_key == "rack"


@pytest.mark.parametrize("pack", ["Preferred", "None"])
def test_only_required_packing_is_passed_on(pack: str) -> None:
    assert gang(spec(topologyKeys=["rack"], pack=pack), "big-1", {}).topology_key == ""


def test_an_amount_that_is_no_quantity_is_left_to_the_api_server() -> None:
    broken: dict[str, Any] = {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}
    assert gang(spec(role("worker", **broken)), "big-1", {}).requests == {}


def test_an_object_counts_only_in_the_version_that_is_written() -> None:
    assert written(ALL) == (V1BETA1, PLUGINS, VOLCANO_GROUPS)
    assert written({V1ALPHA3, V1ALPHA2}) == (V1ALPHA3,)
    assert written(()) == ()


# Names


def named(wanted: GangSpec, *start: object, job: str = "big", tail: str = "") -> str:
    return group_name(wanted, job, tail, start).base


def test_a_name_changes_with_the_start_and_with_the_pods() -> None:
    wanted = spec(role("worker", 2, 4))
    others = [
        named(wanted, "uid", 1),
        named(wanted, "uid-2", 0),
        named(spec(role("worker", 3, 4)), "uid", 0),
        named(spec(role("worker", 2, 2)), "uid", 0),
        named(spec(role("worker", 2, 4, priorityClassName="high")), "uid", 0),
        named(spec(role("worker", 2, 4), topologyKeys=["rack"], pack="Required"), "uid", 0),
    ]
    names = {named(wanted, "uid", 0), *others}
    assert len(names) == len(others) + 1
    assert all(one.startswith("big-") and len(one) == len("big-123456") for one in names)


def test_a_name_tells_a_start_from_a_layout() -> None:
    now = group_name(spec(), "big", "", ["uid", 1])
    assert now.has_shape_of(named(spec(), "uid", 0))
    assert now.has_shape_of(now.after(now.base, used=True))
    assert not now.has_shape_of(named(spec(role("worker", 3)), "uid", 1))


def test_a_start_in_another_queue_has_another_name() -> None:
    now = group_name(replace(spec(), queue="team"), "big", "", ["uid", 1])
    assert not now.has_shape_of(named(spec(), "uid", 1))
    assert gang(replace(spec(), queue="team"), "big-1", {}).queue == "team"


def test_pods_that_still_end_keep_their_podgroup_to_themselves() -> None:
    name = group_name(spec(), "big", "", ["uid", 1])
    first = name.after("", used=False)
    assert first == name.base
    assert name.after(first, used=False) == first
    second = name.after(first, used=True)
    assert second == f"{first}-2" and name.after(second, used=False) == second
    assert name.after(second, used=True) == f"{first}-3"
    assert group_name(spec(), "big", "", ["uid", 2]).after(second, used=False) != first


_NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)


@given(_NAME, st.from_regex(r"[a-z]([-a-z0-9]{0,22}[a-z0-9])?", fullmatch=True), st.integers(0, 9999))
def test_every_name_is_a_label_value_and_ends_in_its_replica(job: str, role_name: str, number: int) -> None:
    name = group_name(spec(), job, f"-{role_name}-{number}", ["uid"])
    for one in (name.base, name.after(name.base, used=True)):
        assert len(one) <= 63 and one[0].isalpha() and one[-1].isalnum()
        assert f"-{role_name}-{number}-" in one
