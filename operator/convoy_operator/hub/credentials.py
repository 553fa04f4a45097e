"""From a CheckpointStore and its keys to what agents are told of it. Pure; nothing here is ever logged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.checkpointstore import KEY_ACCESS, KEY_SECRET, KEY_SESSION, CheckpointStore


def message(store: CheckpointStore, data: Mapping[str, str]) -> wire.Store:
    """What agents are told of a store, but for what is known of it. Its version is a digest of all of it.

    `data`: the keys of a bucket; a volume has none.
    """
    s3, volume = store.spec.s3, store.spec.volume
    told = wire.Store(name=store.metadata.name)
    if s3 is not None:
        told.endpoint, told.region, told.bucket = s3.endpoint, s3.region, s3.bucket
        told.prefix, told.path_style = s3.prefix, s3.path_style
        told.access_key, told.secret_key = data.get(KEY_ACCESS, ""), data.get(KEY_SECRET, "")
        told.session_token = data.get(KEY_SESSION, "")
    if volume is not None:
        told.volume.claim, told.volume.path = volume.claim_name, volume.path
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
        told.volume.claim,
        told.volume.path,
    ]
    told.version = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
    return told
