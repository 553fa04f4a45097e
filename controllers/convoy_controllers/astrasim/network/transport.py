"""Matches messages with receives.

A message and a receive match if tag, source, target and size are equal, in the order of their posting. A
sender's call runs when its message arrives, whether or not the receive is posted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import nlargest
from typing import Any

from convoy_controllers.astrasim.clock import Clock, Event
from convoy_controllers.astrasim.network.medium import Key
from convoy_controllers.astrasim.network.select import select_medium
from convoy_controllers.astrasim.parameters import AnyNetwork
from convoy_controllers.astrasim.result import LinkUse

RENDEZVOUS_BYTES = 8192
COLLECTIVE_TAGS = 500_000_000
"""First tag of messages of collectives. Tags of send and receive nodes are below it."""
RENDEZVOUS_TAGS = 1_000_000_000
BUSIEST = 8
"""Links that a result lists."""

Call = Callable[[Any], None]


class Transport:
    """Sends and receives messages at once."""

    def __init__(self, clock: Clock, network: AnyNetwork) -> None:
        self._clock = clock
        self._medium = select_medium(clock, network, self._deliver)
        self._waiting: dict[Key, Event] = {}
        """The next receive of each key whose message has not arrived."""
        self._behind: dict[Key, deque[Event]] = {}
        """The receives of a key behind the next one."""
        self._arrived: dict[Key, int] = {}
        """Number of messages that no receive has matched."""
        self._sent_calls: dict[Key, deque[Event]] = {}
        """Calls of senders. The messages of a key with such calls arrive in the order of sending."""
        self.messages = 0
        self.bytes = 0

    def send(self, key: Key) -> None:
        """Send a message now."""
        self._medium.send(key)

    def send_and_notify(self, key: Key, sent: Call, argument: Any) -> None:
        """Send a message now. `sent` runs when the message arrives, before the call of its receive.

        All messages of a key must be sent with this method, or none.
        """
        self._sent_calls.setdefault(key, deque()).append((sent, argument))
        self._medium.send(key)

    def receive(self, key: Key, received: Call, argument: Any) -> None:
        """Post a receive. `received` runs when the message is there, and never within this method."""
        if key in self._arrived:
            if self._arrived[key] == 1:
                del self._arrived[key]
            else:
                self._arrived[key] -= 1
            self._clock.at(self._clock.now, received, argument)
        elif key in self._waiting:
            self._behind.setdefault(key, deque()).append((received, argument))
        else:
            self._waiting[key] = (received, argument)

    def pending(self) -> list[Key]:
        """Return the keys of the receives whose message has not arrived."""
        return list(self._waiting)

    def unmatched(self) -> dict[Key, int]:
        """Return the number of arrived messages without a receive, by key."""
        return dict(self._arrived)

    def busiest(self) -> tuple[LinkUse, ...]:
        """Return the links of the highest utilisation, up to a few. Of equal ones, the first used wins."""
        return tuple(nlargest(BUSIEST, self._medium.uses(), key=lambda one: one.utilisation))

    def _deliver(self, key: Key) -> None:
        self.messages += 1
        self.bytes += key[3]
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            received, argument = waiting
            if self._behind:
                self._move_up(key)
            if self._sent_calls:
                self._notify_sender(key)
            received(argument)
            return
        self._arrived[key] = self._arrived.get(key, 0) + 1
        if self._sent_calls:
            self._notify_sender(key)

    def _move_up(self, key: Key) -> None:
        behind = self._behind.get(key)
        if behind is None:
            return
        self._waiting[key] = behind.popleft()
        if not behind:
            del self._behind[key]

    def _notify_sender(self, key: Key) -> None:
        calls = self._sent_calls.get(key)
        if calls is None:
            return
        sent, argument = calls.popleft()
        if not calls:
            del self._sent_calls[key]
        sent(argument)


class RendezvousTransport(Transport):
    """Before each message, the receiver sends 8,192 bytes to the sender, which starts the message."""

    def send(self, key: Key) -> None:
        """Send a message when the receiver is ready."""
        super().receive(self._request(key), super().send, key)

    def send_and_notify(self, key: Key, sent: Call, argument: Any) -> None:
        """Send a message when the receiver is ready."""
        start = super().send_and_notify
        super().receive(self._request(key), lambda _: start(key, sent, argument), None)

    def receive(self, key: Key, received: Call, argument: Any) -> None:
        """Notify the sender, and post the receive when the notification has arrived."""
        post = super().receive
        super().send_and_notify(self._request(key), lambda _: post(key, received, argument), None)

    @staticmethod
    def _request(key: Key) -> Key:
        tag, source, target, _ = key
        return tag + RENDEZVOUS_TAGS, target, source, RENDEZVOUS_BYTES
