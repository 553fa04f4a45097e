"""The folder of a generation, as the node's agent delivers it to a replica: its shards, and its record."""

from __future__ import annotations

import json
from pathlib import Path

from convoy_workloads.serving.protocol import ModelError


def shard_files(folder: Path) -> list[Path]:
    """Return the file of each shard. Raises ModelError if a shard has journal segments."""
    found = []
    for shard in sorted(folder.iterdir()):
        files = sorted(shard.iterdir()) if shard.is_dir() else [shard]
        if len(files) != 1:
            raise ModelError(
                f"shard {shard.name} has {len(files)} files: the generation ends in a journal, which only "
                "the job can replay. Choose a generation without a journal"
            )
        found += files
    if not found:
        raise ModelError(f"{folder} has no shards")
    return found


def record(path: Path) -> dict[str, object]:
    """Return the facts of the generation that `record.json` holds; empty without that file."""
    file = path / "record.json"
    if not file.exists():
        return {}
    try:
        body = json.loads(file.read_bytes())
        incarnation, step = body["generation"]
        facts = {name: body[name] for name in ("world", "torch", "saved") if name in body}
        return {"step": step, "incarnation": incarnation, **facts}
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{file} is malformed: {error}") from error
