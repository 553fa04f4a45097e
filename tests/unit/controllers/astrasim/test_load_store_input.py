"""Invalid input of the load/store mode: each error names the field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from convoy_controllers.astrasim.clock import BudgetExhausted
from convoy_controllers.astrasim.loadstore.events import play
from convoy_controllers.astrasim.loadstore.limits import EVENTS
from convoy_controllers.astrasim.loadstore.parameters import Access, Algorithm, Gpu, Links, Mode, Setup
from convoy_controllers.astrasim.loadstore.parsing import study
from convoy_controllers.astrasim.loadstore.run import run
from convoy_controllers.astrasim.parameters import CollectiveType
from convoy_controllers.astrasim.parsing.fields import InvalidInput


def error(body: Any) -> str:
    """Return the error of a file."""
    with pytest.raises(InvalidInput) as caught:
        run(study(body).setup)
    return str(caught.value)


def test_an_empty_member_has_the_defaults() -> None:
    assert study({"loadStore": {}}).setup == Setup()
    assert study({"loadStore": {"gpu": {}, "links": {}}, "note": "n", "id": "i"}).axes is None


def test_every_parameter_can_be_given() -> None:
    body = {
        "collective": "all_gather",
        "algorithm": "direct",
        "access": "get",
        "bytes": 1000,
        "sync": "gpu",
        "mode": "events",
        "seamBytes": 2000,
        "gpu": {
            "computeUnits": 9, "workgroups": 2, "outstanding": 3, "lineBytes": 64, "issueNs": 4, "cacheNs": 5,
            "memoryNs": 6, "reduceNs": 7, "barrierNs": 8, "launchNs": 9,
        },
        "links": {
            "fabric": "Ring", "gpus": 3, "bytesPerNs": 11, "latencyNs": 12, "headerBytes": 13,
            "burstBytes": 14, "controlFirst": False,
        },
    }  # fmt: skip
    setup = study({"loadStore": body}).setup
    assert setup.collective is CollectiveType.ALL_GATHER and setup.access is Access.GET
    assert setup.algorithm is Algorithm.DIRECT and setup.mode is Mode.EVENTS and setup.size == 1000
    for one, default in ((setup.gpu, Gpu()), (setup.links, Links()), (setup, Setup())):
        changed = [
            field.name for field in fields(one) if getattr(one, field.name) != getattr(default, field.name)
        ]
        assert len(changed) == len(fields(one))
    assert run(setup).moved == 2000


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (None, "loadStore: is required"),
        ([], "loadStore: must be a mapping, is a list"),
        ({"size": 1}, "loadStore.size: there is no such field"),
        ({"bytes": 0}, "loadStore.bytes: must be from 1 to 1.09951e+12, is 0"),
        ({"bytes": 1.5}, "loadStore.bytes: must be a whole number, is 1.5"),
        ({"bytes": 1 << 41}, "loadStore.bytes: must be from 1"),
        ({"seamBytes": 0}, "loadStore.seamBytes: must be from 1"),
        ({"collective": "gather"}, "loadStore.collective: must be one of all_reduce"),
        ({"collective": "broadcast"}, "loadStore.collective: must be one of all_reduce, all_gather"),
        (
            {"algorithm": "direct"},
            "loadStore.algorithm: must be one of oneShot, twoShot, ring for all_reduce",
        ),
        (
            {"collective": "all_to_all"},
            "loadStore.algorithm: must be one of direct for all_to_all, is oneShot",
        ),
        ({"access": "push"}, "loadStore.access: must be one of put, get"),
        ({"gpu": {"lines": 1}}, "loadStore.gpu.lines: there is no such field"),
        ({"gpu": {"lineBytes": 0}}, "loadStore.gpu.lineBytes: must be from 32 to 256, is 0"),
        ({"gpu": {"lineBytes": 100}}, "loadStore.gpu.lineBytes: must be one of 32, 64, 128, 256, is 100"),
        ({"gpu": {"outstanding": 0}}, "loadStore.gpu.outstanding: must be from 1 to 65536, is 0"),
        ({"gpu": {"workgroups": 0}}, "loadStore.gpu.workgroups: must be from 1 to 4096, is 0"),
        (
            {"gpu": {"workgroups": 65, "computeUnits": 64}},
            "loadStore.gpu.workgroups: must be at most 64, the computeUnits, is 65: workgroups wait",
        ),
        ({"gpu": {"cacheNs": -1}}, "loadStore.gpu.cacheNs: must be at least 0, is -1"),
        ({"gpu": {"launchNs": 2e9}}, "loadStore.gpu.launchNs: must be from 0 to 1e+09, is 2e+09"),
        ({"links": {"gpus": 1}}, "loadStore.links.gpus: must be from 2 to 1024, is 1"),
        ({"links": {"latencyNs": 0}}, "loadStore.links.latencyNs: must be from 0.001 to 1e+09, is 0"),
        ({"links": {"latencyNs": -250}}, "loadStore.links.latencyNs: must be at least 0, is -250"),
        ({"links": {"bytesPerNs": 0}}, "loadStore.links.bytesPerNs: must be from 0.001 to 1e+06, is 0"),
        ({"links": {"bytesPerNs": 1e-9}}, "loadStore.links.bytesPerNs: must be from 0.001"),
        (
            {"links": {"fabric": "Torus"}},
            "loadStore.links.fabric: must be one of Switch, FullyConnected, Ring",
        ),
        ({"links": {"controlFirst": "no"}}, 'loadStore.links.controlFirst: must be true or false, is "no"'),
        (
            {"mode": "analytical", "links": {"controlFirst": False}},
            "loadStore.mode: the closed form needs links.controlFirst",
        ),
        (
            {"mode": "events", "bytes": 1 << 32},
            "loadStore.bytes: the run needs about 704,6",
        ),
        (
            {"links": {"controlFirst": False}, "bytes": 1 << 32},
            "loadStore.bytes: the run needs about ",
        ),
    ],
)
def test_an_invalid_file_is_refused_with_the_path_of_the_field(member: Any, message: str) -> None:
    assert error({"loadStore": member}).startswith(message)


def test_an_error_on_too_many_events_says_what_to_change() -> None:
    text = error({"loadStore": {"mode": "events", "bytes": 1 << 32}})
    assert f"more than {EVENTS:,}: use fewer bytes or GPUs, longer lines, a smaller seamBytes" in text


def test_python_callers_get_the_same_errors_under_their_own_path() -> None:
    with pytest.raises(InvalidInput, match=r"^params\.gpu\.cacheNs: must be from 0 to 1e\+09, is nan"):
        run(Setup(gpu=Gpu(cache=float("nan"))), path="params")


def test_a_run_never_plays_more_events_than_its_budget() -> None:
    with pytest.raises(BudgetExhausted):
        play(Setup(size=1 << 16), 100)
    events = play(Setup(size=4096), EVENTS).events
    assert play(Setup(size=4096), events).events == events
