"""Finds targets in Kubernetes for a Prometheus without Kubernetes discovery, such as Debian's.

It is an HTTP service discovery. Its labels are those of Prometheus' own discovery for the role
`endpointslice`, limited to the labels that the chart's ServiceMonitors use:
https://prometheus.io/docs/prometheus/latest/configuration/configuration/#endpointslice
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from e2e.cluster.cluster import Cluster

_META = "__meta_kubernetes_"
_SECONDS = 5


@contextmanager
def discovery(cluster: Cluster) -> Iterator[str]:
    """Run a server that lists the targets of a namespace, or of all. Yield its address, to which a client
    appends `/` and the namespace; nothing more for all namespaces.
    """
    api = client.DiscoveryV1Api(config.new_client_from_config(str(cluster.kubeconfig)))

    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS

        def do_GET(self) -> None:
            namespace = urlsplit(self.path).path.removeprefix("/")
            try:
                slices = (
                    api.list_namespaced_endpoint_slice(namespace, _request_timeout=_SECONDS)
                    if namespace
                    else api.list_endpoint_slice_for_all_namespaces(_request_timeout=_SECONDS)
                ).items
            except (client.ApiException, HTTPError) as error:
                # Prometheus keeps its previous targets when a request fails, so report the failure.
                self.send_error(503, type(error).__name__)
                return
            found = [api.api_client.sanitize_for_serialization(one) for one in slices]
            body = json.dumps([target for one in found for target in targets(one)]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(BrokenPipeError):  # Prometheus has given up.
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(_SECONDS)


def targets(endpoints: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a target for each port of each pod of an EndpointSlice, with the Service's labels."""
    labels = endpoints["metadata"]["labels"]
    for endpoint in endpoints.get("endpoints") or ():
        if "targetRef" not in endpoint:
            continue  # The API server's own Service has endpoints without pods.
        for port in endpoints.get("ports") or ():
            yield {
                "targets": [f"{endpoint['addresses'][0]}:{port['port']}"],
                "labels": {
                    **{f"{_META}service_label_{plain(name)}": value for name, value in labels.items()},
                    f"{_META}namespace": endpoints["metadata"]["namespace"],
                    f"{_META}service_name": labels["kubernetes.io/service-name"],
                    f"{_META}endpointslice_port_name": port["name"],
                    f"{_META}pod_name": endpoint["targetRef"]["name"],
                    f"{_META}pod_node_name": endpoint["nodeName"],
                },
            }


def plain(label: str) -> str:
    """Return a Kubernetes label's name as Prometheus writes it in its own labels."""
    return re.sub(r"\W", "_", label)
