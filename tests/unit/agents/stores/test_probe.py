"""Tests of the probe of a store's guarantees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import FaultProxy
from tests.unit.agents.stores.places import (
    Place,
    bucket,
)

from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.probe import Capabilities, probe
from convoy_agents.tiercheck.stores.volume import Volume


def test_the_probe_reports_capabilities_and_leaves_no_objects(place: Place) -> None:
    assert probe(place.blobs) == Capabilities(
        conditional=True, listing=True, ranges=True, touch=True, checksums=False
    )
    assert not place.keys()


def test_the_probe_leaves_no_folder(tmp_path: Path) -> None:
    probe(Volume(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fault", "method", "path", "wanting"),
    [
        (fault_proxy.without("if-none-match"), "PUT", "", "conditional"),
        (fault_proxy.without("range"), "GET", "", "ranges"),
        (fault_proxy.empty_list, "GET", "list-type", "listing"),
    ],
)
def test_the_probe_detects_ignored_request_features(
    proxy: FaultProxy, fault: fault_proxy.Fault, method: str, path: str, wanting: str
) -> None:
    prefix = f"probed-{uuid4()}"
    proxy.inject(fault, method, path)
    found = probe(bucket(proxy.url, prefix))
    assert found == replace(
        Capabilities(conditional=True, listing=True, ranges=True, touch=True, checksums=False),
        **{wanting: False},
    )
    assert not fault_proxy.keys(prefix)


def test_the_probe_detects_checksum_verification(proxy: FaultProxy) -> None:
    proxy.inject(fault_proxy.check_crc32, "PUT")
    found = probe(bucket(proxy.url))
    assert found == Capabilities(conditional=True, listing=True, ranges=True, touch=True, checksums=True)
    assert "work" in found.summary
    assert "nothing is committed" in replace(found, conditional=False).summary


def test_the_probe_fails_if_the_store_is_down(proxy: FaultProxy) -> None:
    proxy.inject(fault_proxy.refuse(503))
    with pytest.raises(StoreError):
        probe(bucket(proxy.url))
