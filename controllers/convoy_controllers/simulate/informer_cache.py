"""The operator's informer cache in a simulated cluster. It lags behind the API server."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_controllers.simulate.api import Api, Stored
from convoy_controllers.simulate.job_reader import cached_job
from convoy_controllers.simulate.kernel import Channel, Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.trainingjob.claiming import claims_of
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class CachedPod:
    """A pod in the cache, with its resource version."""

    pod: PodView
    version: int


class InformerCache:
    """Cache of jobs and pods, filled by watches. The operator's own writes are cached at once."""

    def __init__(self, kernel: Kernel, latencies: Latencies, api: Api) -> None:
        self._latencies = latencies
        self._api = api
        self._kernel = kernel
        self._channel = Channel(kernel)
        self._session = 0
        self._watching = False
        self._sent: dict[str, PodView] = {}
        """Pods by name, as the watch last sent them."""
        self._removed: set[str] = set()
        self._nodes: dict[str, Hashable] = {}
        """The part of each node that matters to jobs, as the watch last sent it."""
        self.jobs: dict[str, Stored[Any]] = {}
        self._pods: dict[str, dict[str, CachedPod]] = {}
        self.wake: Callable[[str, bool], None] = lambda job, urgent: None
        """Called with the name of a job that has changed. The second argument is True if the job must be
        reconciled at once, and False if further changes may be collected first.
        """
        api.listeners.append(self._send_change)

    def start(self) -> None:
        """List all objects and start the watches."""
        self.stop()
        self._watching = True
        self._removed.clear()
        self.jobs = dict(self._api.jobs)
        self._sent = dict(self._api.pods)
        self._pods = {}
        for pod in self._api.pods.values():
            self.put_pod(pod)

    def stop(self) -> None:
        """Stop the watches. Events that are on their way are lost."""
        self._session += 1
        self._watching = False

    def pods(self, job: str) -> tuple[PodView, ...]:
        """Return the cached pods that have a job's name as their label."""
        return tuple(cached.pod for cached in self._pods.get(job, {}).values())

    def all_pods(self) -> Iterator[PodView]:
        """Yield the cached pods of all jobs."""
        for group in self._pods.values():
            for cached in group.values():
                yield cached.pod

    def jobs_on(self, node: str) -> list[str]:
        """Return the names of the jobs that have a pod on a node. Pods that no longer need their node do
        not count.
        """
        return [
            job
            for job, group in self._pods.items()
            if any(cached.pod.node == node and cached.pod.needs_node for cached in group.values())
        ]

    # The operator's own writes

    def put_job(self, stored: Stored[Any]) -> None:
        """Cache a job that the API server returned."""
        before = self.jobs.get(stored.job.metadata.name)
        self.jobs[stored.job.metadata.name] = stored
        self._wake_claimed(before, stored)

    def put_pod(self, pod: PodView) -> None:
        """Cache a pod that the API server returned."""
        group = self._pods.setdefault(pod.labels.get(LABEL_JOB, ""), {})
        group[pod.name] = CachedPod(pod, self._api.versions.get(pod.uid, 0))

    def drop_pod(self, pod: PodView) -> None:
        """Drop a pod that no longer exists."""
        self._removed.add(pod.uid)
        group = self._pods.get(pod.labels.get(LABEL_JOB, ""), {})
        if (known := group.get(pod.name)) is not None and known.pod.uid == pod.uid:
            del group[pod.name]

    # Watch events

    def _send_change(self, kind: str, name: str) -> None:
        if not self._watching or not self._api.up:
            return
        session, pause = self._session, self._kernel.about(self._latencies.watch)
        if kind == "jobs":
            stored = self._api.jobs.get(name)
            self._channel.send(
                pause, lambda: self._receive_job(name, stored) if session == self._session else None
            )
        elif kind == "nodes":
            self._send_node(name)
        elif kind.endswith("/status"):
            self._channel.send(pause, lambda: self._wake_owner(name) if session == self._session else None)
        elif kind == "pods":
            before, pod = self._sent.get(name), self._api.pods.get(name)
            version = self._api.versions.get(pod.uid, 0) if pod else 0
            if pod is not None:
                self._sent[name] = pod
            else:
                self._sent.pop(name, None)
            self._channel.send(
                pause, lambda: self._receive_pod(before, pod, version) if session == self._session else None
            )

    def _send_node(self, name: str) -> None:
        """Wake the jobs on a node if a part of the node has changed that matters to them."""
        node, session = self._api.nodes.get(name), self._session
        part = (node.ready, node.cordoned, node.agent_ready) if node else None
        if self._nodes.get(name) == part:
            return
        self._nodes[name] = part

        def receive() -> None:
            for job in self.jobs_on(name) if session == self._session else ():
                self.wake(job, False)

        self._kernel.after(self._latencies.watch, receive)

    def _receive_job(self, name: str, stored: Stored[Any] | None) -> None:
        known = self.jobs.get(name)
        if stored is None:
            self.jobs.pop(name, None)
            self._wake_claimed(known, None)
        elif known is None or known.version < stored.version:
            self.jobs[name] = stored
            self._wake_claimed(known, stored)
            spec = known is None or known.job.metadata.generation != stored.job.metadata.generation
            self.wake(name, spec)

    def _wake_claimed(self, before: Stored[Any] | None, after: Stored[Any] | None) -> None:
        """Wake the jobs whose pods a job claims, or has claimed until this change."""
        claims = [_claims(before), _claims(after)]
        if claims[0] != claims[1]:
            for job in {claim["job"] for found in claims for claim in found}:
                self.wake(job, False)

    def _wake_owner(self, name: str) -> None:
        """Wake the owner of an applied object whose status has changed."""
        uids = {
            body["metadata"]["ownerReferences"][0]["uid"]
            for (_, one), body in self._api.objects.items()
            if one == name
        }
        for job, stored in self.jobs.items():
            if stored.job.metadata.uid in uids:
                self.wake(job, False)

    def _receive_pod(self, before: PodView | None, pod: PodView | None, version: int) -> None:
        if before is not None and (pod is None or pod.uid != before.uid):
            self.drop_pod(before)
            self.wake(before.labels.get(LABEL_JOB, ""), True)
        if pod is None or pod.uid in self._removed:
            return
        group = self._pods.setdefault(pod.labels.get(LABEL_JOB, ""), {})
        known = group.get(pod.name)
        if known is not None and known.pod.uid == pod.uid and known.version >= version:
            return
        group[pod.name] = CachedPod(pod, version)
        ended = pod.phase in ENDED_PHASES and (known is None or known.pod.phase != pod.phase)
        turned = known is not None and known.pod.ready != pod.ready
        self.wake(pod.labels.get(LABEL_JOB, ""), ended or turned)


def _claims(stored: Stored[Any] | None) -> Sequence[Mapping[str, Any]]:
    """Return the pods that a job claims."""
    if stored is None or not isinstance(stored.job, TrainingJob):
        return ()
    placed = stored.job.status.placement
    return claims_of(cached_job(stored)) if placed is not None and placed.claims else ()
