"""The input of every decision about a CheckpointStore. It contains no credentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.checkpointstore import CheckpointStore


@dataclass(frozen=True, slots=True)
class Probe:
    """One agent's result of probing the store."""

    node: str
    at: datetime
    reached: bool
    conditional: bool = False
    """True if exactly one of several concurrent conditional writes succeeds."""
    checksums: bool = False
    unmounted: bool = False
    """True if the claim of the store's volume is not mounted into the agent's pod."""
    message: str = ""
    """The agent's explanation of the result, for people."""


@dataclass(frozen=True, slots=True)
class Secret:
    """The state of the store's Secret, without its content. A store on a volume has no Secret; all fields
    then keep their defaults.
    """

    unreadable: str = ""
    """Reason why the Secret cannot be read; empty if it can be read."""
    missing: tuple[str, ...] = ()
    """Keys of the Secret that are missing or empty."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the store and its probe results."""

    store: CheckpointStore
    namespace: str = ""
    """The operator's namespace. It contains the Secret or the claim."""
    secret: Secret = field(default_factory=Secret)
    probe: Probe | None = None
    """The last probe of the current store and Secret; None if there was none."""
    probing_node: str = ""
    """Name of the node whose agent is probing the store; empty if no agent is."""
    fresh: bool = False
    """True for FRESH_SECONDS after the store or its Secret changed, or after the operator became the
    leader. During this time, `probe` may be None only because no agent has reported its first result
    yet.
    """
