"""All calls into private parts of Ray. They fit the pinned version; `check_version` refuses all others.

Ray has no public way to say that a node will vanish, nor to ask which nodes will.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

RAY_VERSION = "2.60.0"
RPC_SECONDS = 2
"""Maximum number of seconds of a call to the head's control service."""
_OWN_DRAINS = b"convoy drains"
"""Namespace of the keys, in the control service, that name the nodes which `start_drain` has drained."""
_OWN_TITLES = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent", b"ray::IDLE")
"""Titles of Ray's own processes, and of processes that wait for work."""


class OtherRay(RuntimeError):
    """The installed version of Ray is not the one whose private parts are known."""


def check_version() -> None:
    """Raise OtherRay if the installed Ray is not the pinned one."""
    try:
        found = version("ray")
    except PackageNotFoundError:
        raise OtherRay(f"Ray is not installed: add ray=={RAY_VERSION} to the image") from None
    if found != RAY_VERSION:
        raise OtherRay(f"Ray {found} is installed, but Convoy needs ray=={RAY_VERSION} in the image")


def start_drain(gcs: str, node_id: str, deadline: float, why: str) -> bool:
    """Mark a node as draining until `deadline` (Unix seconds), so that Ray starts nothing more on it.

    Return False if the control service refuses or does not respond. Ray itself ends nothing at the deadline.
    `ForeignDrains` leaves out this drain.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: PLC0415
    from ray.core.generated import autoscaler_pb2  # noqa: PLC0415

    try:
        client = GcsClient(address=gcs)
        client.internal_kv_put(node_id.encode(), b"", True, namespace=_OWN_DRAINS, timeout=RPC_SECONDS)
        accepted, _ = client.drain_node(
            node_id,
            autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"),
            why,
            max(1, int(deadline * 1000)),
            timeout=RPC_SECONDS,
        )
    except Exception:  # The client raises errors of many kinds, which are private as well.
        return False
    return bool(accepted)


def draining_nodes() -> Mapping[str, float]:
    """Return the deadline (Unix seconds) of each draining node, by node id; infinity without a deadline.

    Needs a connected driver. Returns nothing if the control service does not respond.
    """
    import ray._private.state  # noqa: PLC0415

    try:
        found: Mapping[str, int] = ray._private.state.state.get_draining_nodes()
    except Exception:
        return {}
    return {node: ms / 1000 if ms else float("inf") for node, ms in found.items()}


@dataclass(frozen=True)
class Drain:
    """A node that Ray's control service lists as draining."""

    node_id: str
    address: str
    """The node's own address. Under Convoy this is the IP of its pod."""
    deadline: float
    """Unix seconds at which the node may disappear; infinity if unknown."""


class ForeignDrains:
    """The drains that another program than Convoy has begun. Needs no connected driver."""

    def __init__(self, gcs: str) -> None:
        """`gcs`: address of the head's control service."""
        self._gcs = gcs
        self._client: Any = None

    def poll(self) -> list[Drain]:
        """Return the draining nodes; none if the control service does not respond in time."""
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: PLC0415

        try:
            if self._client is None:
                self._client = GcsClient(address=self._gcs)
            draining: Mapping[str, int] = self._client.get_draining_nodes(timeout=RPC_SECONDS)
            if not draining:
                return []
            own = self._client.internal_kv_keys(b"", namespace=_OWN_DRAINS, timeout=RPC_SECONDS)
            nodes = self._client.get_all_node_info(timeout=RPC_SECONDS)
        except Exception:  # The client raises errors of many kinds, which are private as well.
            return []
        addresses = {key.hex(): node.node_manager_address for key, node in nodes.items()}
        return [
            Drain(node, addresses[node], ms / 1000 if ms else float("inf"))
            for node, ms in draining.items()
            if node in addresses and node.encode() not in own
        ]


def node_id(arguments: Iterable[tuple[bytes, ...]]) -> str | None:
    """Return the id of the node whose processes have these command lines; None if it is not among them."""
    marks = [word for words in arguments for word in words if word.startswith(b"--node_id=")]
    return marks[0].partition(b"=")[2].decode() if marks else None


def is_actor(arguments: tuple[bytes, ...]) -> bool:
    """Return True if this is the command line of a process that runs an actor or a task."""
    title = b" ".join(arguments)
    return title.startswith(b"ray::") and not title.startswith(_OWN_TITLES)
