"""Tests of a certificate authority that a real cert-manager creates and renews, as the chart configures it.

The tests need the variable CONVOY_CERT_MANAGER. It names a folder with cert-manager's program `controller`
and with its CRDs in `deploy/crds`, as in its repository.
"""

from __future__ import annotations

import asyncio
import base64
import os
import urllib.error
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from tests.integration.chart.conftest import render
from tests.integration.conftest import binaries

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.terms import CA_SECRET

from .conftest import FakeAgent, Installation, eventually, hello, running

NAMED = os.environ.get("CONVOY_CERT_MANAGER", "")
API = "cert-manager.io/v1"
PATIENCE = 60.0

pytestmark = [
    pytest.mark.skipif(not NAMED, reason="CONVOY_CERT_MANAGER names no cert-manager"),
    pytest.mark.timeout(240),
]


class CertManager:
    """The certificate authority that cert-manager manages for one installation."""

    def __init__(self, installation: Installation) -> None:
        self._call = installation.call
        self._namespace = installation.namespace

    def _path(self, plural: str, name: str = "") -> str:
        return f"/apis/{API}/namespaces/{self._namespace}/{plural}/{name}".rstrip("/")

    async def request(self) -> None:
        """Create the objects with which the chart requests the certificate authority."""
        bodies = await asyncio.to_thread(
            render, binaries() / "helm", "certificates.mode=CertManager", apis=(API,)
        )
        for kind, plural in (("Issuer", "issuers"), ("Certificate", "certificates")):
            (body,) = (one for one in bodies if one["kind"] == kind)
            body["metadata"]["namespace"] = self._namespace
            await self._call("POST", self._path(plural), body)

    async def content(self, revision: int | None) -> bool:
        """Return True if the certificate is ready at this revision and no issuance is pending. The revision
        is None before the first certificate.
        """
        status = (await self._call("GET", self._path("certificates", CA_SECRET))).get("status", {})
        known = {one["type"]: one["status"] for one in status.get("conditions", ())}
        settled = known.get("Ready") == "True" and known.get("Issuing") != "True"
        return settled and status.get("revision") == revision

    async def renew(self) -> None:
        """Request a renewal in the way of `cmctl renew`."""
        found = await self._call("GET", self._path("certificates", CA_SECRET))
        issuing = {
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "by a test",
            "lastTransitionTime": found["metadata"]["creationTimestamp"],
        }
        found["status"]["conditions"].append(issuing)
        await self._call("PUT", self._path("certificates", CA_SECRET) + "/status", found)

    async def secret(self) -> tuple[bytes, bytes]:
        """Return the key and the certificate in the Secret."""
        data = (await self._call("GET", f"/api/v1/namespaces/{self._namespace}/secrets/{CA_SECRET}"))["data"]
        return base64.b64decode(data["tls.key"]), base64.b64decode(data["tls.crt"])


@asynccontextmanager
async def cert_manager(installation: Installation, folder: Path) -> AsyncIterator[CertManager]:
    """Run cert-manager for the installation's namespace."""
    for path in sorted((Path(NAMED) / "deploy/crds").glob("*.yaml")):
        try:
            await installation.call(
                "POST",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                yaml.safe_load(path.read_text()),
            )
        except urllib.error.HTTPError as error:
            assert error.code == 409, error.read()
    command = [
        *(str(Path(NAMED) / "controller"), f"--kubeconfig={installation.plane.kubeconfig()}"),
        *(f"--namespace={installation.namespace}", "--leader-elect=false"),
        *("--metrics-listen-address=127.0.0.1:0", "--internal-healthz-listen-address=127.0.0.1:0"),
        "--controllers=issuers,certificates-trigger",
        "--controllers=certificates-issuing,certificates-key-manager,certificates-request-manager",
        "--controllers=certificates-readiness,certificates-revision-manager",
        "--controllers=certificaterequests-approver,certificaterequests-issuer-selfsigned",
    ]
    manager = CertManager(installation)

    async def served() -> bool:
        try:
            await installation.call("GET", f"/apis/{API}/certificates")
        except urllib.error.HTTPError:
            return False
        return True

    await eventually(served, PATIENCE, "its kinds are there")
    with (folder / "cert-manager.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            yield manager
        finally:
            process.terminate()
            async with asyncio.timeout(20):
                await process.wait()


async def welcomed(operator: Any, agent: FakeAgent, ca: bytes) -> bool:
    """Return True if the hub admits an agent that trusts only this CA."""
    response = await hello(operator.server.session_port, ca, agent.key, agent.certificate, agent.node)
    return isinstance(response, wire.HubMessage) and response.WhichOneof("body") == "welcome"


async def test_cert_manager_keeps_the_operators_key_and_existing_agents_stay_valid(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        before = FakeAgent(installation, operator.server, node)
        await before.enrol()
        old = await installation.ca()
    async with cert_manager(installation, tmp_path) as manager:
        key, certificate = await manager.secret()
        assert certificate == old
        await manager.request()
        await eventually(lambda: manager.content(None), PATIENCE, "cert-manager owns the Secret")
        assert await manager.secret() == (key, old), "the existing certificate stays until its renewal"
        async with running(installation, monkeypatch, ca_maker="CertManager") as operator:
            assert await installation.ca() == old
            await manager.renew()
            await eventually(lambda: manager.content(1), PATIENCE, "it has renewed")
            again, renewed = await manager.secret()
            assert again == key and renewed != old
            assert await welcomed(operator, before, old) and await welcomed(operator, before, renewed)
        async with running(installation, monkeypatch, ca_maker="CertManager") as operator:
            assert await installation.ca() == renewed
            after = FakeAgent(installation, operator.server, node)
            await after.enrol()
            for agent in (before, after):
                assert all([await welcomed(operator, agent, ca) for ca in (old, renewed)])


async def test_a_deleted_secret_is_recreated_with_another_key(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with cert_manager(installation, tmp_path) as manager:
        await manager.request()
        await eventually(lambda: manager.content(1), PATIENCE, "it has made one")
        key, certificate = await manager.secret()
        subject = x509.load_pem_x509_certificate(certificate).subject.rfc4514_string()
        assert subject == "CN=convoy-ca"
        path = f"/api/v1/namespaces/{installation.namespace}/secrets/{CA_SECRET}"
        await installation.call("DELETE", path)
        await eventually(lambda: manager.content(2), PATIENCE, "it has made another")
        assert (await manager.secret())[0] != key
        async with running(installation, monkeypatch, ca_maker="CertManager"):
            assert await installation.ca() == (await manager.secret())[1]
