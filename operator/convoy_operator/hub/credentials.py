"""From a CheckpointStore and its keys to what agents are told of it. Pure; nothing here is ever logged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.checkpointstore import KEY_ACCESS, KEY_SECRET, KEY_SESSION, CheckpointStore


def message(store: CheckpointStore, data: Mapping[str, str]) -> wire.Store:
    """What agents are told of a store, but for what is known of it. Its version is a digest of all of it."""
    s3 = store.spec.s3
    told = wire.Store(
        name=store.metadata.name,
        endpoint=s3.endpoint,
        region=s3.region,
        bucket=s3.bucket,
        prefix=s3.prefix,
        path_style=s3.path_style,
        access_key=data.get(KEY_ACCESS, ""),
        secret_key=data.get(KEY_SECRET, ""),
        session_token=data.get(KEY_SESSION, ""),
    )
    # Not of the serialised message: that may differ between releases.
    fields = [
        told.name,
        told.endpoint,
        told.region,
        told.bucket,
        told.prefix,
        told.path_style,
        told.access_key,
        told.secret_key,
        told.session_token,
    ]
    told.version = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
    return told
