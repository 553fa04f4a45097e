"""The proxies of a simulated cluster. They send each request to a ready replica, as far as they know."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from convoy_controllers.resources import SERVICES
from convoy_controllers.simulate.api import Api
from convoy_controllers.simulate.kernel import Channel, Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_ENDPOINT, LABEL_JOB


class Proxies:
    """The endpoints of each Service, as the proxies know them. All proxies know the same."""

    def __init__(self, kernel: Kernel, latencies: Latencies, api: Api) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._listed: dict[str, tuple[str, ...]] = {}
        """Uids of the ready pods of each Service, as its EndpointSlices have them."""
        self._known: dict[str, tuple[str, ...]] = {}
        self._channels: dict[str, Channel] = {}
        self._services: dict[str, str] = {}
        """Name of the job of each pod that was seen, by name of the pod."""
        self.changed: Callable[[str], None] = lambda job: None
        """Called with the name of a Service whose endpoints the proxies have learnt."""
        self.listed_changed: Callable[[str], None] = lambda job: None
        """Called with the name of a Service whose EndpointSlices have changed."""
        api.listeners.append(self._pod_changed)

    def known(self, service: str) -> tuple[str, ...]:
        """Return the uids of the pods to which the proxies send requests."""
        return self._known.get(service, ())

    def listed(self, service: str) -> frozenset[str]:
        """Return the uids of the ready pods in a Service's EndpointSlices."""
        return frozenset(self._listed.get(service, ()))

    def front(self, service: str) -> str:
        """Return the endpoint label of the pods to which a Service leads; empty without a Service."""
        found: Any = self._api.objects.get((SERVICES, service))
        return str(found["spec"]["selector"].get(LABEL_ENDPOINT, "")) if found else ""

    def choose(self, service: str, rng: random.Random) -> str | None:
        """Return the uid of the pod that gets the next request; None if there is no endpoint."""
        known = self.known(service)
        return known[int(rng.random() * len(known))] if known else None

    def _pod_changed(self, kind: str, name: str) -> None:
        if kind == SERVICES.plural:
            self._send(name)
        if kind != "pods":
            return
        pod = self._api.pods.get(name)
        service = pod.labels.get(LABEL_JOB, "") if pod else self._services.pop(name, "")
        if pod is not None:
            self._services[name] = service
        self._send(service)

    def _send(self, service: str) -> None:
        """Send the endpoints of a Service to the proxies if they have changed."""
        if not self._api.lists_endpoints or (SERVICES, service) not in self._api.objects:
            return
        ready = tuple(sorted(one.uid for one in self._api.pods_of(service) if self._is_endpoint(one)))
        if ready == self._listed.get(service, ()):
            return
        self._listed[service] = ready
        self.listed_changed(service)
        channel = self._channels.setdefault(service, Channel(self._kernel))
        pause = self._kernel.about(self._latencies.endpoints)
        channel.send(pause, lambda: self._learn(service, ready))

    def _is_endpoint(self, pod: PodView) -> bool:
        selected = self._api.objects[SERVICES, pod.labels[LABEL_JOB]]["spec"]["selector"]
        serves = pod.ready and not pod.deleting and pod.phase == "Running"
        return serves and all(pod.labels.get(key) == value for key, value in selected.items())

    def _learn(self, service: str, ready: tuple[str, ...]) -> None:
        self._known[service] = ready
        self.changed(service)
