"""Tests of the local cluster's volumes."""

from __future__ import annotations

from pathlib import Path

from e2e.storage import names, objects


def test_a_claim_without_a_class_gets_a_folder_shared_by_all_nodes() -> None:
    storage_class, *volumes = objects(Path("/shared"))["items"]
    assert storage_class["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert [volume["metadata"]["name"] for volume in volumes] == names()
    for volume in volumes:
        spec = volume["spec"]
        assert (spec["storageClassName"], spec["accessModes"]) == ("shared", ["ReadWriteMany"])
        assert spec["hostPath"]["path"] == f"/shared/{volume['metadata']['name']}"
