"""The logs of pods: what there is to be read, and reading them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from convoy.client.api import TIMEOUT_SECONDS, Api
from convoy.client.errors import ConvoyError, Forbidden
from convoy.client.watch import CONNECT_SECONDS
from convoy_crds import containers

SILENCE_TIMEOUT_SECONDS = 1800.0
"""A log that is followed and is silent for so long is opened anew: its connection may be dead."""

Notify = Callable[[str], None]
"""Takes a sentence about what cannot be read now."""


@dataclass(frozen=True, slots=True)
class PodLog:
    """The log of one pod, as a look finds it."""

    uid: str
    name: str
    started: bool
    """Its container has started: there is something to read."""
    ended: bool
    """Its container has ended: nothing more comes."""
    read: Callable[[], Iterator[str]]
    """Its lines from the first one, each with its time before it, until the container ends."""


def pod_log(api: Api, pod: Any) -> PodLog:
    """The log of a pod's ranks, to be followed."""
    ranks = rank_container(pod)
    states = [one.state for one in pod.status.container_statuses or [] if one.name == ranks]
    ended = any(state.terminated for state in states)
    started = ended or any(state.running for state in states)
    name, uid = pod.metadata.name, pod.metadata.uid
    return PodLog(uid, name, started, ended, partial(log_lines, api, pod, follow=True))


def rank_container(pod: Any) -> str:
    """Name of the container that runs a pod's ranks."""
    return containers.rank_container(pod.metadata.annotations, [one.name for one in pod.spec.containers])


def log_lines(api: Api, pod: Any, follow: bool = False) -> Iterator[str]:
    """The lines of the log of a pod's ranks; with `follow` each with its time before it."""
    lines = api.lines(
        f"the log of {pod.metadata.name}",
        api.core.read_namespaced_pod_log,
        pod.metadata.name,
        pod.metadata.namespace,
        container=rank_container(pod),
        follow=follow,
        timestamps=follow,
        _request_timeout=(CONNECT_SECONDS, SILENCE_TIMEOUT_SECONDS) if follow else TIMEOUT_SECONDS,
    )
    return (line.decode(errors="replace") for line in lines)


def read_in_turn(sources: Mapping[str, Callable[[], Iterator[str]]], notify: Notify) -> Iterator[str]:
    """The lines of the sources, by name, one source after the other.

    Tells of one that cannot be read when others are still to come, and raises the first error after them;
    Forbidden at once.
    """
    failures: list[ConvoyError] = []
    for left, (name, source) in zip(range(len(sources))[::-1], sources.items(), strict=True):
        try:
            yield from source()
        except Forbidden:
            raise
        except ConvoyError as error:
            failures.append(error)
            if left or len(failures) > 1:
                notify(f"the log of {name} could not be read: {error}")
    if failures:
        raise failures[0]
