"""Fits the target of a load to the entries that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def add_saved(state: dict[str, Any], saved: Mapping[str, Any]) -> None:
    """Add to `state` the saved entries of the optimizer that the target lacks, so that they are loaded too.

    These are keys that the program adds to a parameter group, such as a scheduler's `initial_lr`
    (pytorch#140900), and the state of parameters that are frozen by now (pytorch#192202). `saved`: the
    metadata of each saved entry, by name (`Metadata.state_dict_metadata`).
    """
    optimizer = state.get("optimizer")
    if optimizer is None:
        return
    groups, moments = optimizer["param_groups"], optimizer["state"]
    owners = {name for group in groups for name in group["params"]}
    kinds = {key for one in moments.values() if isinstance(one, dict) for key in one}
    for name, entry in saved.items():
        if name.startswith("optimizer.param_groups."):
            number, _, key = name.removeprefix("optimizer.param_groups.").partition(".")
            if number.isdigit() and int(number) < len(groups) and "." not in key and key:
                group = groups[int(number)]
                if key not in group:
                    group[key] = _empty(entry)
        elif name.startswith("optimizer.state."):
            owner, _, key = name.removeprefix("optimizer.state.").rpartition(".")
            parameter = state["model"].get(owner)
            # Torch itself restores the state of parameters in FSDP's first version (ShardedTensor).
            wanted = (
                owner in owners and (key in kinds or not kinds) and not hasattr(parameter, "local_shards")
            )
            if wanted and key not in moments.get(owner, ()):
                moments.setdefault(owner, {})[key] = _empty(entry, parameter)


def _empty(entry: Any, parameter: Any = None) -> Any:
    """Return a value into which the entry with this metadata can be loaded. If it belongs to a DTensor, it is
    distributed in the same way.
    """
    import torch  # noqa: PLC0415

    if not hasattr(entry, "size"):
        return None
    if hasattr(parameter, "to_local") and parameter.shape == entry.size:
        return torch.empty_like(parameter, dtype=entry.properties.dtype, requires_grad=False)
    return torch.empty(entry.size, dtype=entry.properties.dtype)


def drop_unsaved(state: dict[str, Any], saved: Collection[str]) -> None:
    """Remove from `state` the entries that were not saved and that a checkpoint need not contain.

    These are a rank's own values, and the optimizer's state of parameters that never had a gradient.

    `saved`: names of all saved entries. If no optimizer was saved, the optimizer's entries stay, so that
    loading fails. Otherwise the optimizer would silently start without its history. An optimizer that was
    saved before its first step has parameter groups but no state.
    """
    known = _with_ancestors(saved)
    for name in [name for name in state if name.startswith("rank.")]:
        if not _prune(state[name], name, known):
            del state[name]
    if not known & {"optimizer.state", "optimizer.param_groups"}:
        return
    moments = state.get("optimizer", {}).get("state", {})
    for name in list(moments):
        if f"optimizer.state.{name}" not in known:
            del moments[name]


def _with_ancestors(names: Collection[str]) -> set[str]:
    """Return the names, and the names of all dicts that contain them."""
    found = set(names)
    for name in names:
        above = name.rpartition(".")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition(".")[0]
    return found


def _prune(tree: dict[str, Any], path: str, known: Collection[str]) -> bool:
    """Remove from `tree` every entry that is not in `known`. Return True if any entry remains."""
    for key in list(tree):
        name = f"{path}.{key}"
        inner = isinstance(tree[key], dict) and tree[key]
        kept = _prune(tree[key], name, known) if inner else name in known
        if not kept:
            del tree[key]
    return bool(tree)
