"""Tests of certificates.mode, which decides who creates the certificate authority."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convoy_crds.terms import CA_SECRET
from convoy_operator.settings import CA_MAKERS, from_environment

from .conftest import Bodies, of_kind, one, render

BY_CERT_MANAGER = "certificates.mode=CertManager"
CERT_MANAGER = ("cert-manager.io/v1",)


def environment(bodies: Bodies) -> dict[str, str]:
    (container,) = one(bodies, "Deployment", "convoy-operator")["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def creates(bodies: Bodies) -> set[str]:
    """Return the resources that the operator may create in its own namespace."""
    roles: list[dict[str, Any]] = [
        b for b in of_kind(bodies, "Role") if b["metadata"]["name"] == "convoy-operator"
    ]
    return {
        kind
        for role in roles
        for rule in role["rules"]
        if "create" in rule["verbs"]
        for kind in rule["resources"]
    }


@pytest.mark.parametrize("mode", CA_MAKERS)
def test_the_operator_knows_the_issuer_of_the_ca(helm: Path, mode: str) -> None:
    bodies = render(helm, f"certificates.mode={mode}", apis=CERT_MANAGER)
    assert from_environment(environment(bodies)).ca_maker == mode
    by_operator = mode == "Operator"
    assert ("secrets" in creates(bodies)) is by_operator
    assert "configmaps" in creates(bodies)
    assert bool(of_kind(bodies, "Certificate")) is bool(of_kind(bodies, "Issuer")) is not by_operator


def test_cert_manager_writes_where_the_operator_reads_and_keeps_the_key(helm: Path) -> None:
    bodies = render(helm, BY_CERT_MANAGER, apis=CERT_MANAGER)
    spec = one(bodies, "Certificate", "convoy-ca")["spec"]
    assert (spec["isCA"], spec["secretName"]) == (True, CA_SECRET)
    assert spec["privateKey"]["rotationPolicy"] == "Never"
    assert "cert sign" in spec["usages"]
    issuer = one(bodies, "Issuer", spec["issuerRef"]["name"])
    assert issuer["spec"] == {"selfSigned": {}}


def test_a_missing_cert_manager_is_reported(helm: Path) -> None:
    with pytest.raises(ValueError, match=r"this cluster has no cert-manager\.io/v1: install cert-manager"):
        render(helm, BY_CERT_MANAGER)
