"""The assembly of the parts for notices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from convoy_agents.guard.sweep.provenance import kernel_boot_id
from convoy_agents.pods.registry import Pods
from convoy_agents.settings import Settings
from convoy_agents.spot.notices import Notices
from convoy_agents.spot.pod_notices import PodNotices
from convoy_agents.spot.sources import source_named
from convoy_agents.spot.watcher import MetadataWatcher
from convoy_agents.wire import hub_pb2


class Spot:
    """All parts for notices of one agent."""

    def __init__(self, settings: Settings, pods: Pods, wake: Callable[[], None]) -> None:
        """`wake` is called when a message to the hub is due."""
        self.notices = Notices(kernel_boot_id(), wake)
        self.watcher = MetadataWatcher(
            self.notices, partial(source_named, fake=settings.fake_notices, node=settings.node)
        )
        self.pods = PodNotices(lambda: [pod.uid for pod in pods])
        pods.on_opened = self.pods.opened

    def apply(self, message: hub_pb2.SpotNode) -> None:
        """Apply the SpotPool's orders for this node."""
        self.watcher.choose(message.metadata)
        self.pods.apply(message)
