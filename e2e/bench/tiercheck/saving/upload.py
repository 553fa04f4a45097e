"""Measures uploads from a node's memory to an S3 server, compared with boto3's upload of as many bytes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import boto3
from botocore.config import Config
from tests.integration.agents.memory_job import MemoryJob

from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Tier
from e2e.bench.tiercheck.saving import bulk
from e2e.bench.tiercheck.saving.memory import LOOPBACK, hub_at, node
from e2e.cluster import binaries
from e2e.cluster.progress import Progress
from e2e.drive.s3_server import ACCESS, BUCKET, SECRET, S3Server, serve

UID = "aaaa-1111"


@dataclass
class Uploads:
    """Seconds of each upload, by Convoy (`ours`) and by boto3 (`theirs`)."""

    ours: list[float] = field(default_factory=list)
    """Seconds from the seal of a generation in memory until it is committed in the store."""
    theirs: list[float] = field(default_factory=list)


async def measure(root: Path, size: int, times: int, progress: Progress) -> Uploads:
    """Upload a generation of `size` random bytes with Convoy, and a file with the same bytes with boto3. Do
    both `times` times.

    The order of the two uploads alternates.
    """
    found = Uploads()
    with serve(binaries.tool("versitygw", progress), LOOPBACK) as objects:
        async with hub_at() as hub, node(root, hub, 6 * size) as one:
            hub.send(one.node, store=_store(objects))
            use = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=1)
            job = MemoryJob(hub, root, store=use)
            (rank,) = await job.form(1, [(UID, one)])
            await bulk.prepare([rank], size)
            for step in range(1, times + 1):
                # Write the file to the RAM disk, so that boto3 reads from memory too.
                path = Path("/dev/shm") / f"{root.parent.name}-upload"
                try:
                    with path.open("wb") as file:
                        buffer = await bulk.fill(rank, size, file.write)
                    if step % 2:
                        found.theirs.append(await asyncio.to_thread(_plain, objects, path))
                    began = time.monotonic()
                    await bulk.seal(rank, buffer, step, size, 1)
                    await rank.stands(Tier.REMOTE, 1, step, bulk.TIMEOUT_SECONDS)
                    found.ours.append(time.monotonic() - began)
                    if not step % 2:
                        found.theirs.append(await asyncio.to_thread(_plain, objects, path))
                finally:
                    path.unlink(missing_ok=True)
    return found


def _plain(objects: S3Server, path: Path) -> float:
    """Upload with boto3's managed upload and its defaults (parts of 8 MiB on ten threads). Return the
    seconds.
    """
    client = boto3.client(
        "s3",
        endpoint_url=objects.endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}),
    )
    began = time.monotonic()
    client.upload_file(str(path), BUCKET, "plain")
    seconds = time.monotonic() - began
    client.delete_object(Bucket=BUCKET, Key="plain")
    return seconds


def _store(objects: S3Server) -> hub_pb2.Store:
    return hub_pb2.Store(
        name="s3",
        version="1",
        endpoint=objects.endpoint,
        bucket=BUCKET,
        prefix="bench",
        path_style=True,
        access_key=ACCESS,
        secret_key=SECRET,
        conditional=True,
    )
