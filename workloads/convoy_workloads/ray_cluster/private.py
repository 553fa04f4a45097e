"""All calls into private parts of Ray. They fit the pinned version; `check_version` refuses all others.

Ray has no public way to say that a node will vanish, nor to ask which nodes will.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

RAY_VERSION = "2.60.0"
RPC_SECONDS = 2
"""Maximum number of seconds of a call to the head's control service."""
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
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: PLC0415
    from ray.core.generated import autoscaler_pb2  # noqa: PLC0415

    try:
        accepted, _ = GcsClient(address=gcs).drain_node(
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


def node_id(arguments: Iterable[tuple[bytes, ...]]) -> str | None:
    """Return the id of the node whose processes have these command lines; None if it is not among them."""
    marks = [word for words in arguments for word in words if word.startswith(b"--node_id=")]
    return marks[0].partition(b"=")[2].decode() if marks else None


def is_actor(arguments: tuple[bytes, ...]) -> bool:
    """Return True if this is the command line of a process that runs an actor or a task."""
    title = b" ".join(arguments)
    return title.startswith(b"ray::") and not title.startswith(_OWN_TITLES)
