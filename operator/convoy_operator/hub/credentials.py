"""Conversion of a CheckpointStore and its keys to a message for agents. The function is pure and logs
nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.checkpointstore import KEY_ACCESS, KEY_SECRET, KEY_SESSION, CheckpointStore


def message(store: CheckpointStore, data: Mapping[str, str]) -> wire.Store:
    """Return the message for agents about a store, without probe results. The message's version is a digest
    of its fields.

    `data` holds the keys of a bucket; it is empty for a volume.
    """
    s3, volume = store.spec.s3, store.spec.volume
    built = wire.Store(name=store.metadata.name)
    if s3 is not None:
        built.endpoint, built.region, built.bucket = s3.endpoint, s3.region, s3.bucket
        built.prefix, built.path_style = s3.prefix, s3.path_style
        built.access_key, built.secret_key = data.get(KEY_ACCESS, ""), data.get(KEY_SECRET, "")
        built.session_token = data.get(KEY_SESSION, "")
    if volume is not None:
        built.volume.claim, built.volume.path = volume.claim_name, volume.path
    # Compute the digest from the fields: the bytes of the serialised message may differ between releases.
    fields = [
        built.name,
        built.endpoint,
        built.region,
        built.bucket,
        built.prefix,
        built.path_style,
        built.access_key,
        built.secret_key,
        built.session_token,
        built.volume.claim,
        built.volume.path,
    ]
    built.version = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
    return built
