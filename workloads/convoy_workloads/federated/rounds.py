"""One round of the server: it collects the clients' messages until all are there, or the time is over.

A message that cannot be used is quarantined: it is counted with its reason and changes nothing. A client
without a usable message has vanished. The round counts if a quorum of the clients has sent a usable one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from convoy_workloads.federated.levels import Factors, Levels
from convoy_workloads.federated.update import Update, UpdateError, from_bytes

REASONS = (
    "undecodable",
    "unknown client",
    "other round",
    "duplicate",
    "unknown rank",
    "wrong shape",
    "no samples",
    "too many samples",
    "not finite",
)
MAX_MESSAGES = 10_000
"""Maximum number of messages of a round beyond one for each client. Later ones are not read."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """The messages that a server waits for. Raises ValueError for a round that no messages can complete."""

    number: int
    clients: Mapping[str, int]
    """Ranks of the clients that were asked, by name."""
    levels: Levels
    shapes: Factors
    """The server's adapters."""
    quorum: float = 0.6
    """Share of the clients that must send a usable message."""
    timeout: float = 60.0
    """Seconds that the server waits."""
    samples: Mapping[str, int] | None = None
    """Largest number of samples of each client, by name. Samples are weights, so without a limit one message
    with a huge number decides every mean. None accepts any number.
    """

    def __post_init__(self) -> None:
        if not self.clients:
            raise ValueError("clients: a round needs at least one client")
        if not 0 <= self.quorum <= 1:
            raise ValueError(f"quorum: {self.quorum} is not from 0 to 1")
        if not self.timeout > 0:
            raise ValueError(f"timeout: {self.timeout} is not positive")
        for name, rank in self.clients.items():
            if rank not in self.levels.ranks:
                raise ValueError(f"clients: {name!r} has rank {rank}, not one of {list(self.levels.ranks)}")
        if self.samples is not None and (missing := sorted(self.clients.keys() - self.samples.keys())):
            raise ValueError(f"samples: no limit for the client {missing[0]!r}")
        for name, (a, b) in self.shapes.items():
            if len(a) != self.levels.largest or b.shape[1:] != (len(a),):
                raise ValueError(
                    f"shapes: {name} has shapes {list(a.shape)} and {list(b.shape)}, but the server's rank "
                    f"is {self.levels.largest}"
                )


@dataclass
class Outcome:
    """The messages of a round."""

    quorum: int
    """Number of usable messages that the round needs."""
    updates: list[Update] = field(default_factory=list)
    quarantined: list[tuple[str, str]] = field(default_factory=list)
    """Client, if known, and reason of each message that cannot be used."""
    vanished: list[str] = field(default_factory=list)
    """Clients without a usable message."""
    received_bytes: int = 0

    @property
    def quorate(self) -> bool:
        """Return True if the round counts."""
        return len(self.updates) >= self.quorum


def collect(
    receive: Callable[[float], bytes | None], asked: Round, clock: Callable[[], float] = time.monotonic
) -> Outcome:
    """Collect the messages of a round. `receive` returns the next message, or None if there is none within
    the given seconds.
    """
    outcome = Outcome(max(1, math.ceil(asked.quorum * len(asked.clients))))
    waiting, answered, deadline = set(asked.clients), set[str](), clock() + asked.timeout
    for _ in range(MAX_MESSAGES + len(asked.clients)):
        left = deadline - clock()
        if not waiting or left <= 0:
            break
        message = receive(left)
        if message is None:
            break
        outcome.received_bytes += len(message)
        update, name, reason = _judge(message, asked)
        if update is not None and name in answered:
            update, reason = None, "duplicate"
        if update is None:
            outcome.quarantined.append((name, reason))
        else:
            answered.add(name)
            outcome.updates.append(update)
        if reason != "other round":  # A late message of an earlier round is no answer to this one.
            waiting.discard(name)
    outcome.vanished = sorted(set(asked.clients) - answered)
    return outcome


def _judge(message: bytes, asked: Round) -> tuple[Update | None, str, str]:
    """Return the update if it can be used, the client, and the reason if it cannot."""
    try:
        update = from_bytes(message)
    except UpdateError:
        return None, "", "undecodable"
    reason = ""
    if update.client not in asked.clients:
        reason = "unknown client"
    elif update.round != asked.number:
        reason = "other round"
    elif update.rank not in asked.levels.ranks or update.rank != asked.clients[update.client]:
        reason = "unknown rank"
    elif not _fits(update, asked.shapes):
        reason = "wrong shape"
    elif update.samples < 1:
        reason = "no samples"
    elif asked.samples is not None and update.samples > asked.samples[update.client]:
        reason = "too many samples"
    elif not all(bool(torch.isfinite(one).all()) for pair in update.factors.values() for one in pair):
        reason = "not finite"
    return (None if reason else update), update.client, reason


def _fits(update: Update, shapes: Factors) -> bool:
    if update.factors.keys() != shapes.keys():
        return False
    return all(
        a.shape == (update.rank, shapes[name][0].shape[1])
        and b.shape == (shapes[name][1].shape[0], update.rank)
        for name, (a, b) in update.factors.items()
    )
