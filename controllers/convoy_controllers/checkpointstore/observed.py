"""The input of every decision about a CheckpointStore. It contains no credentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.checkpointstore import CheckpointStore


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of an agent's probe of the store."""

    node: str
    at: datetime
    reached: bool
    conditional: bool = False
    """True if of several concurrent conditional writes exactly one succeeds."""
    checksums: bool = False
    unmounted: bool = False
    """True if the store's claim is not mounted into that agent."""
    message: str = ""
    """The agent's explanation, for people."""


@dataclass(frozen=True, slots=True)
class Secret:
    """The state of the Secret, without its content. A volume has no Secret, and then nothing is wrong."""

    unreadable: str = ""
    """Why it cannot be read; empty if it can."""
    missing: tuple[str, ...] = ()
    """Keys that are missing or empty."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the store and its probe results."""

    store: CheckpointStore
    namespace: str = ""
    """The operator's namespace, which holds the Secret or the claim."""
    secret: Secret = field(default_factory=Secret)
    probe: Probe | None = None
    """The last probe of the store and Secret as they are now."""
    probing_node: str = ""
    """The node whose agent is probing the store; empty if none is."""
    fresh: bool = False
    """True if the store, its Secret or this leader is so new that a probe result may still arrive."""
