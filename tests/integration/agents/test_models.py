"""Tests of the delivery of models: an agent reads a generation from a store, and mounts it into pods."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, eventually
from tests.integration.agents.memory_job import JOB as MEMORY_JOB
from tests.integration.agents.memory_job import MemoryJob, saved
from tests.integration.agents.ranks import free_port, running, socket_of, start, variables
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import BUCKET, FaultProxy
from tests.unit.agents.stores import places

import convoy_workloads
from convoy_agents import metrics
from convoy_agents.csi import mounts
from convoy_agents.models import delivery
from convoy_agents.tiercheck.stores.s3 import S3, Bucket
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Record

A, B, C = "aaaa-1111", "bbbb-2222", "cccc-3333"
GPT = Path(convoy_workloads.__path__[0]) / "engines" / "gpt" / "engine.py"
JOB = "uid-of-training"
STEP, MIB = 40, 2**20
SHARDS = {name: [places.noise((name, index), MIB) for index in range(3)] for name in ("0", "1")}


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[FaultProxy]:
    found = FaultProxy(server)
    yield found
    found.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


@pytest.fixture
def prefix() -> str:
    return f"clusters/{uuid4()}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "MAX_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(delivery, "DAMAGED_SECONDS", 0.2)
    monkeypatch.setattr(delivery, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def stored(proxy: FaultProxy, prefix: str) -> Record:
    """Save a generation of two shards with three chunks each."""
    where = Bucket(BUCKET, endpoint_url=proxy.url, prefix=prefix, addressing="path")
    store = Store(S3(where, places.KEYS), "default", JOB)
    manifests = [
        places.put(store, places.shard(STEP, pieces, name), pieces) for name, pieces in SHARDS.items()
    ]
    record = places.record_of(*manifests)
    assert store.commit(record)
    return record


async def send_store(
    hub: FakeHub, proxy: FaultProxy, prefix: str, host: Host, conditional: bool = False, pinned: Any = ()
) -> None:
    await hub.until(lambda node, message: node == host.node and message.HasField("hello"))
    store = hub_pb2.Store(name="s3", version="1", endpoint=proxy.url, bucket=BUCKET, prefix=prefix)
    store.path_style, store.access_key, store.secret_key = True, "key", "secret"
    store.conditional = conditional
    store.pinned.extend(pinned)
    hub.send(host.node, store=store)


def model_target(host: Host, uid: str) -> Path:
    return host.target(uid).parent.parent / "convoy-model" / "mount"


async def start_pod(host: Host, uid: str) -> Path:
    """Mount both volumes of a serving pod. Return the folder of its model."""
    await host.publish(uid)
    await mount_model(host, uid)
    return model_target(host, uid)


async def mount_model(host: Host, uid: str, content: str = "model") -> None:
    pod = "csi.storage.k8s.io/pod."
    context = {f"{pod}name": "p", f"{pod}namespace": "default", f"{pod}uid": uid}
    await host.publish(
        uid,
        f"csi-model-{uid}",
        target_path=str(model_target(host, uid)),
        volume_context={**context, "convoy.dev/content": content},
    )


def order(hub: FakeHub, host: Host, uid: str, step: int = STEP, incarnation: int = 1) -> None:
    source = hub_pb2.ModelSource(
        namespace="default", job_uid=JOB, store="s3", incarnation=incarnation, step=step
    )
    hub.send(host.node, deliver_model=hub_pb2.DeliverModel(pod_uid=uid, source=source))


async def result(hub: FakeHub, uid: str, start: int = 0) -> hub_pb2.ModelReport:
    """Wait until a delivery has succeeded or failed."""
    loading = hub_pb2.ModelReport.LOADING
    report = await hub.report(uid, lambda one: one.HasField("model") and one.model.state != loading, start)
    found: hub_pb2.ModelReport = report.model
    return found


async def failure(hub: FakeHub, uid: str, start: int = 0) -> tuple[str, str]:
    found = await result(hub, uid, start)
    assert found.state == hub_pb2.ModelReport.FAILED
    return hub_pb2.ModelReport.Failure.Name(found.failure), found.message


def downloads() -> float:
    return float(metrics.MODEL_DOWNLOADS.labels("done")._value.get())


def read(folder: Path) -> dict[str, bytes]:
    paths = [one for one in folder.rglob("*") if one.is_file()]
    return {str(one.relative_to(folder)): one.read_bytes() for one in paths}


def read_as_anyone(folder: Path) -> bytes:
    """Return the record as a user without rights reads it. The parents of a test's folder are closed to this
    user, so the program starts in the folder itself.
    """
    command: list[str] = ["cat", "record.json"]
    return subprocess.run(
        command, cwd=folder, user=12345, group=12345, extra_groups=[], check=True, capture_output=True
    ).stdout


def expected(record: Record) -> dict[str, bytes]:
    shards = {f"shards/{name}/gen-1-{STEP}": b"".join(pieces) for name, pieces in SHARDS.items()}
    return {"record.json": record.text, **shards}


async def test_pods_of_a_node_share_one_download_that_they_cannot_change(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, stored: Record
) -> None:
    host = await make_host("one")
    await send_store(hub, proxy, prefix, host)
    before = downloads()
    folders = [await start_pod(host, uid) for uid in (A, B)]
    for uid in (A, B):
        order(hub, host, uid)
    for uid, folder in zip((A, B), folders, strict=True):
        assert (await result(hub, uid)).state == hub_pb2.ModelReport.READY
        assert read(folder) == expected(stored)
        assert not (host.target(uid) / "record.json").exists(), "the socket's volume shows no model"
    assert downloads() == before + 1
    gets = [one.path for one in proxy.seen if one.method == "GET" and "/chunks/" in one.path]
    assert len(gets) == len(set(gets)) == 6
    shard = folders[0] / "shards" / "0" / f"gen-1-{STEP}"
    assert shard.samefile(folders[1] / "shards" / "0" / f"gen-1-{STEP}")
    assert stat.S_IMODE(shard.stat().st_mode) == 0o444
    with pytest.raises(OSError, match="Read-only"):
        shard.chmod(0o666)
    assert await asyncio.to_thread(read_as_anyone, folders[0]) == stored.text


@pytest.mark.parametrize("incarnation", [0, 1])
async def test_a_step_is_found_without_its_incarnation(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, stored: Record, incarnation: int
) -> None:
    host = await make_host("one")
    await send_store(hub, proxy, prefix, host)
    order(hub, host, A, incarnation=incarnation)  # The agent does not know the pod yet.
    folder = await start_pod(host, A)
    await hub.report(A, lambda one: True)
    order(hub, host, A, incarnation=incarnation)
    report = await result(hub, A)
    assert report.state == hub_pb2.ModelReport.READY and report.source.incarnation == incarnation
    assert read(folder) == expected(stored)


async def test_a_damaged_byte_is_never_delivered(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, stored: Record
) -> None:
    host = await make_host("one")
    await send_store(hub, proxy, prefix, host)
    chunk = next(key for key in fault_proxy.keys(f"{prefix}/") if "/chunks/" in key)
    original = next(p for pieces in SHARDS.values() for p in pieces if places.chunk_of(p).digest in chunk)
    fault_proxy.spoil(chunk, bytes([original[0] ^ 1]) + original[1:])
    folder = await start_pod(host, A)
    order(hub, host, A)
    kind, why = await failure(hub, A)
    assert kind == "DIGEST_MISMATCH" and BUCKET in why and chunk.rpartition("/")[2] in why
    assert read(folder) == {}
    # After the store has been repaired, the agent delivers without another order.
    mark = len(hub.messages)
    fault_proxy.spoil(chunk, original)
    await hub.report(A, lambda one: one.model.state == hub_pb2.ModelReport.READY, mark)
    assert read(folder) == expected(stored)


async def test_a_step_that_the_store_lacks_is_named(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, stored: Record
) -> None:
    host = await make_host("one")
    await send_store(hub, proxy, prefix, host)
    await start_pod(host, A)
    order(hub, host, A, step=41)
    kind, why = await failure(hub, A)
    assert kind == "NOT_FOUND" and "step 41 of incarnation 1" in why and BUCKET in why


async def test_a_store_that_is_away_is_reported_until_it_is_back(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, stored: Record
) -> None:
    host = await make_host("one")
    await start_pod(host, A)
    await hub.report(A, lambda one: True)
    order(hub, host, A)
    kind, why = await failure(hub, A)
    assert kind == "STORE_UNREACHABLE" and "has not sent its settings" in why
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"))
    mark = len(hub.messages)
    await send_store(hub, proxy, prefix, host)
    await hub.report(A, lambda one: "AccessDenied" in one.model.message, mark)
    proxy.heal()
    await hub.report(A, lambda one: one.model.state == hub_pb2.ModelReport.READY, mark)


async def test_a_model_that_does_not_fit_is_refused_before_its_download(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, stored: Record
) -> None:
    host = await make_host("one")
    host.agent.model_folders._limit = 5 * MIB
    await send_store(hub, proxy, prefix, host)
    await start_pod(host, A)
    order(hub, host, A)
    kind, why = await failure(hub, A)
    assert kind == "NOT_STORED" and "the model has 6.0 MiB" in why and "agent.models.limitGiB" in why
    assert not [one for one in proxy.seen if "/chunks/" in one.path and one.method == "GET"]


async def test_another_agent_keeps_a_delivered_model(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, stored: Record
) -> None:
    host = await make_host("one")
    await send_store(hub, proxy, prefix, host)
    folder = await start_pod(host, A)
    order(hub, host, A)
    await result(hub, A)
    await host.crash()
    left = host.settings.models_dir / "generations" / "0123.new" / "shards"
    left.mkdir(parents=True)
    mark, before = len(hub.messages), downloads()
    await host.start()
    assert not left.exists() and read(folder) == expected(stored)
    await hub.report(A, lambda one: not one.HasField("model"), mark)
    order(hub, host, A)
    assert (await result(hub, A, mark)).state == hub_pb2.ModelReport.READY
    host.agent.model_folders.remove_unused(0)
    assert len(list((host.settings.models_dir / "generations").iterdir())) == 1
    for volume, target in ((f"csi-{A}", host.target(A)), (f"csi-model-{A}", model_target(host, A))):
        await host.unpublish(A, volume, target)
    assert not list((host.settings.models_dir / "pods").iterdir())
    await start_pod(host, B)
    await hub.report(B, lambda one: True, mark)
    order(hub, host, B)
    assert (await result(hub, B)).state == hub_pb2.ModelReport.READY
    assert downloads() == before, "a generation stays for some time after its last pod"


async def test_a_volume_with_unknown_content_is_refused(make_host: HostMaker) -> None:
    host = await make_host("one")
    with pytest.raises(Exception, match=r"convoy\.dev/content is 'secrets', not 'model'"):
        await mount_model(host, A, content="secrets")
    assert not [one for one in mounts.table() if one.target == str(model_target(host, A))]


def test_the_generation_of_an_order_names_its_folder() -> None:
    from convoy_agents.models.source import from_wire

    one = hub_pb2.ModelSource(namespace="a", job_uid=JOB, store="s3", incarnation=1, step=STEP)
    other = hub_pb2.ModelSource(namespace="b", job_uid=JOB, store="s3", incarnation=1, step=STEP)
    assert from_wire(one).key != from_wire(other).key, "namespaces share no models"
    assert Generation(1, STEP).name == f"gen-1-{STEP}"


async def test_a_job_keeps_the_generations_that_serving_jobs_load(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, short_folder: Path
) -> None:
    host = await make_host("one")
    pins = [
        hub_pb2.ModelSource(namespace="default", job_uid=MEMORY_JOB, store="s3", incarnation=1, step=10),
        hub_pb2.ModelSource(namespace="default", job_uid=MEMORY_JOB, store="s3", step=20),
        hub_pb2.ModelSource(namespace="default", job_uid="uid-of-another", store="s3", step=30),
    ]
    await send_store(hub, proxy, prefix, host, conditional=True, pinned=pins)
    job = MemoryJob(hub, short_folder, store=hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=1))
    ranks = await job.start_incarnation(1, [(A, host)])
    for step in (10, 20, 30, 40):
        await saved(ranks, 1, step, Tier.REMOTE)
    folder = f"{prefix}/default/{MEMORY_JOB}/records/"

    def kept() -> set[str]:
        return {key.removeprefix(folder) for key in fault_proxy.keys(folder)}

    await eventually(lambda: kept() == {"gen-1-10", "gen-1-20", "gen-1-40"})


async def test_lm_serves_the_weights_that_gpt_has_saved(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, short_folder: Path
) -> None:
    import torch

    from convoy_workloads.engines.lm import weights
    from convoy_workloads.engines.lm.params import Params

    host = await make_host("one")
    await send_store(hub, proxy, prefix, host, conditional=True)
    use = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=2)
    job = MemoryJob(hub, short_folder, store=use)
    await job.form(1, [(A, host), (B, host)])
    params = {"steps": 12, "width": 32, "heads": 2, "layers": 2, "context": 16, "batch": 4, "warmup": 1}
    params |= {"data_megabytes": 0.2, "sample_bytes": 60, "learning_rate": 0.05}
    port = free_port()
    async with running() as ranks:
        for rank, uid in enumerate((A, B)):
            environment = {
                **variables(rank, 2, port, 1, socket_of(short_folder, uid, 1)),
                "CONVOY_CHECKPOINT_TIERS": "local,remote",
                # One save, at the end: the second of two saves that follow soon would be a journal.
                "CONVOY_CHECKPOINT_SECONDS": "3600",
                "CONVOY_PARAMS": json.dumps(params),
            }
            ranks.append(await start(GPT, "", environment))
        await ranks[0].until("^---$")
        for one in ranks:
            assert await one.process.wait() == 0
    output = "".join(ranks[0].lines)
    printed = output.partition("--- the model writes ---\n")[2].removesuffix("\n---\n")
    folder = await start_pod(host, C)
    source = hub_pb2.ModelSource(namespace="default", job_uid=MEMORY_JOB, store="s3", incarnation=1, step=12)
    hub.send(host.node, deliver_model=hub_pb2.DeliverModel(pod_uid=C, source=source))
    assert (await result(hub, C)).state == hub_pb2.ModelReport.READY
    loaded = weights.load(folder, Params(), lambda: None)
    assert loaded.facts["trained"] and (loaded.facts["incarnation"], loaded.facts["step"]) == (1, 12)
    written = loaded.model.write(b"def ", 60, torch.Generator().manual_seed(1))
    assert "def " + written.decode("utf-8", "replace") == printed
