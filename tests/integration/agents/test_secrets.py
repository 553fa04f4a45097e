"""Tests that no secret appears in the logs and files of operator and agent processes, even at log level
DEBUG.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.harness import Host
from tests.integration.agents.test_remote import proxy, server
from tests.integration.agents.test_rotation import OperatorHub
from tests.integration.operator.conftest import Installation, eventually, installation, quiet_logs
from tests.integration.operator.test_leadership import Replica
from tests.integration.operator.test_stores import Case
from tests.unit.agents.fault_proxy import BUCKET, FaultProxy, refuse

from convoy_crds.terms import CA_SECRET

MAX_BYTES = 2**20
"""Maximum bytes of a file that the test searches. This excludes the files of the checkpoint memory, which
contain nothing in this test.
"""

__all__ = ["installation", "proxy", "quiet_logs", "server"]


@pytest.fixture
def short() -> Iterator[Path]:
    """Yield a folder with a path that is short enough for socket addresses."""
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


@asynccontextmanager
async def operator(place: Installation, folder: Path) -> AsyncIterator[Replica]:
    """Start an operator process, and yield it once its hub serves."""
    replica = Replica(place, "replica", folder)
    await replica.start()

    async def ready() -> bool:
        assert replica.process.returncode is None, replica.log.read_text()[-3000:]
        return b"hub serves" in replica.log.read_bytes()

    try:
        await eventually(ready, 60, "the hub serves")
        yield replica
    finally:
        await replica.stop()


@asynccontextmanager
async def agent(host: Host, log: Path) -> AsyncIterator[None]:
    """Run the agent process of a node inside the context."""
    own = {one.metadata["env"]: str(getattr(host.settings, one.name)) for one in fields(host.settings)}
    scratch = host.root / "scratch"
    scratch.mkdir()
    environment = {**own, "CONVOY_LOG_LEVEL": "DEBUG", "TMPDIR": str(scratch)}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "convoy_agents",
            env={**environment, "PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]},
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


def files(folder: Path) -> dict[str, str]:
    """Return the text of each file in a folder, by relative path. Undecodable bytes are replaced, and large
    files are omitted.
    """
    return {
        str(path.relative_to(folder)): path.read_text(errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_size < MAX_BYTES
    }


def keys() -> dict[str, str]:
    return {name: f"{name}-{secrets.token_hex(8)}" for name in ("accessKey", "secretKey", "sessionToken")}


async def test_no_key_token_or_credential_is_logged_or_reported(
    installation: Installation,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    short: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("CONVOY_LOG_LEVEL", "DEBUG")
    good, bad = Case(installation), Case(installation)
    node, agents_log = f"{installation.namespace}-n", tmp_path / "agent.log"
    first, second = keys(), keys()
    await installation.node(node)
    async with operator(installation, tmp_path) as replica:
        place = type("Ports", (), {})()
        place.enrolment_port, place.session_port = replica.enrolment_port, replica.session_port
        ca = await installation.ca()
        beside: Any = OperatorHub(place, ca)
        host = Host(short, node, beside)
        token = await installation.agent_token(node)
        host.settings.token_file.write_text(token)
        async with agent(host, agents_log):
            s3 = {"endpoint": proxy.url, "bucket": BUCKET, "pathStyle": True}
            await good.keys(create=True, **first)
            await good.create("*", s3={**s3, "credentialsSecret": good.name})
            await good.expect_reason("Probed")
            # The store echoes the credentials in its error message, as some stores do.
            detail = f"The key {second['accessKey']} with token {second['sessionToken']} is not known"
            proxy.inject(refuse(403, "InvalidAccessKeyId", detail))
            await bad.keys(create=True, **second)
            await bad.create("*", s3={**s3, "credentialsSecret": bad.name})
            await bad.expect_reason("StoreUnreachable")
            kept = files(short)
        status = f"{await good.status()} {await bad.status()}"
    logs = {"operator": replica.log.read_text(), "agent": agents_log.read_text(), "status": status}
    authority = await installation.call("GET", f"{good.secrets}/{CA_SECRET}")
    pem = base64.b64decode(authority["data"]["tls.key"]).decode().splitlines()[1]
    confidential = {"the agent's token": token, "the operator's": installation.token, "a key": "PRIVATE KEY"}
    # Also search for the Secret's value, which is the base64 of the whole key.
    confidential |= {"the authority's key": pem, "the authority's Secret": authority["data"]["tls.key"]}
    for number, one in enumerate((first, second)):
        confidential |= {f"{name} {number}": text for name, text in one.items()}
    confidential |= {
        f"{name} in base64": base64.b64encode(text.encode()).decode() for name, text in confidential.items()
    }
    found = [
        (where, name) for where, log in logs.items() for name, text in confidential.items() if text in log
    ]
    assert found == []
    # The token file is expected in the folder, because the kubelet writes it there.
    del confidential["the agent's token"]
    found = [
        (where, name) for where, text in kept.items() for name, one in confidential.items() if one in text
    ]
    assert found == [], "what it knows lies on no disk of its node"
    assert f"{node}/token" in kept, "its folders were looked into"
    assert '"level": "debug"' in logs["operator"] or '"level":"debug"' in logs["operator"], (
        "it logs all it can"
    )
    assert "certificate issued" in logs["operator"] and "enrolled" in logs["agent"]
    assert good.name in logs["agent"] and bad.name in logs["agent"]
