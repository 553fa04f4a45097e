"""Reads the logs of pods. It also says whether the container of a log has started or ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from convoy.client.api import TIMEOUT_SECONDS, Api
from convoy.client.errors import ConvoyError, Forbidden, Refused
from convoy.client.watch import CONNECT_SECONDS
from convoy_crds import containers

SILENCE_TIMEOUT_SECONDS = 1800.0
"""Seconds. If a followed log has no line for this time, its connection may be dead, so the log is opened
again.
"""
MAX_PODS = 64
"""Maximum number of pods whose logs are read at once."""

Notify = Callable[[str], None]
"""A function to call with a sentence about a log that cannot be read at the moment."""


@dataclass(frozen=True, slots=True)
class PodLog:
    """The log of one pod, with the state of its container at the time of a scan."""

    uid: str
    name: str
    started: bool
    """True if the container had started at the time of the scan. Before the start its log cannot be read."""
    ended: bool
    """True if the container had ended at the time of the scan. Then no further lines are added to the log."""
    read: Callable[[], Iterator[str]]
    """A function that yields the lines from the first line until the container ends. Each line has its time
    in front.
    """
    prefix: str = ""
    """Text to put in front of each line, after the time is removed."""


def pod_log(api: Api, pod: Any, prefix: str = "") -> PodLog:
    """Return the log of the container that runs a pod's ranks."""
    ranks = rank_container(pod)
    states = [one.state for one in pod.status.container_statuses or [] if one.name == ranks]
    ended = any(state.terminated for state in states)
    started = ended or any(state.running for state in states)
    name, uid = pod.metadata.name, pod.metadata.uid
    return PodLog(uid, name, started, ended, partial(log_lines, api, pod, follow=True), prefix)


def rank_container(pod: Any) -> str:
    """Return the name of the container that runs a pod's ranks."""
    return containers.rank_container(pod.metadata.annotations, [one.name for one in pod.spec.containers])


def log_lines(api: Api, pod: Any, follow: bool = False, prefix: str = "") -> Iterator[str]:
    """Yield the lines that a pod's ranks wrote, each with `prefix` in front. With `follow`, wait for further
    lines until the container ends, and put the time in front of each line.
    """
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
    return (prefix + line.decode(errors="replace") for line in lines)


def read_in_turn(sources: Mapping[str, Callable[[], Iterator[str]]], notify: Notify) -> Iterator[str]:
    """Yield the lines of the sources, one source after the other. The keys of `sources` are pod names.

    If a source fails, the other sources are still read, and then the first error is raised. `notify`
    reports each further error. It also reports the first error if other sources follow. Forbidden is raised
    at once.
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
                notify(f"cannot read the log of {name}: {error}")
    if failures:
        raise failures[0]


def check_number(pods: Sequence[Any], advice: str) -> None:
    """Raise Refused with `advice` if there are too many pods to read at once."""
    if len(pods) > MAX_PODS:
        raise Refused(f"{len(pods)} pods are too many to read at once (at most {MAX_PODS}): {advice}")
