"""Connects to a cluster's dashboard and reads the rights of its users."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kubernetes import client, config

from e2e.cluster.cluster import Cluster
from e2e.install import NAMESPACE

DASHBOARD = f"system:serviceaccount:{NAMESPACE}:convoy-dashboard"
"""User name of the dashboard's service account."""
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@contextmanager
def port_forward(cluster: Cluster, service: str, port: int, seconds: float = 30) -> Iterator[str]:
    """Run `kubectl port-forward` to a Service of Convoy's namespace. Yield the local address."""
    kubectl = str(cluster.binaries / "kubectl")
    command = [kubectl, "-n", NAMESPACE, "port-forward", f"service/{service}", f":{port}"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield f"http://localhost:{_port(process, time.monotonic() + seconds)}"
        finally:
            process.terminate()


def _port(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Return the local port that kubectl chose."""
    assert process.stdout is not None
    output = b""
    while time.monotonic() < deadline:
        if not select.select([process.stdout], [], [], 0.5)[0]:
            continue
        piece = os.read(process.stdout.fileno(), 4096)
        output += piece
        if found := _FORWARDED.search(output.decode()):
            return int(found[1])
        if not piece:
            break
    raise AssertionError(f"kubectl port-forward: {output.decode()}")


@contextmanager
def reader_token(
    cluster: Cluster, namespace: str, name: str, role: str = "", audience: str = ""
) -> Iterator[str]:
    """Create a ServiceAccount and yield its token.

    With `role`, the account has this ClusterRole in its namespace; without `role` it has no rights.
    `audience` is the token's audience; if it is empty, the token is for the API server.
    """
    own = ("-n", namespace)
    cluster.kubectl(*own, "create", "serviceaccount", name)
    try:
        if role:
            account = f"--serviceaccount={namespace}:{name}"
            cluster.kubectl(*own, "create", "rolebinding", name, f"--clusterrole={role}", account)
        options = [f"--audience={audience}"] if audience else []
        yield cluster.kubectl(*own, "create", "token", name, *options).strip()
    finally:
        cluster.kubectl(*own, "delete", "rolebinding,serviceaccount", name, "--ignore-not-found")


def api_resources(cluster: Cluster) -> set[tuple[str, str]]:
    """Return (group, plural) of every resource of the API server, including subresources."""
    versions = ["api/v1"]
    for group in json.loads(cluster.kubectl("get", "--raw", "/apis"))["groups"]:
        versions += [f"apis/{version['groupVersion']}" for version in group["versions"]]
    found = set()
    for version in versions:
        group = version.split("/")[1] if version.startswith("apis/") else ""
        listed = json.loads(cluster.kubectl("get", "--raw", f"/{version}"))["resources"]
        found |= {(group, resource["name"]) for resource in listed}
    return found


def granted(cluster: Cluster, user: str, verbs: Collection[str]) -> set[tuple[str, str]]:
    """Return (verb, plural) of everything that a user may do in Convoy's namespace or in all namespaces.

    The result is the same as that of `kubectl auth can-i` for each verb and resource.
    """
    api = client.AuthorizationV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]

    def may(wanted: tuple[str, str, str, str]) -> bool:
        namespace, verb, group, plural = wanted
        name, _, subresource = plural.partition("/")
        attributes = client.V1ResourceAttributes(
            namespace=namespace, verb=verb, group=group, resource=name, subresource=subresource
        )
        spec = client.V1SubjectAccessReviewSpec(user=user, groups=groups, resource_attributes=attributes)
        status = api.create_subject_access_review(client.V1SubjectAccessReview(spec=spec)).status
        return bool(status and status.allowed)

    known = sorted(api_resources(cluster))
    wanted = [(where, verb, *one) for where in ("", NAMESPACE) for verb in verbs for one in known]
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(may, wanted)
        return {(verb, plural) for (_, verb, _, plural), yes in zip(wanted, results, strict=True) if yes}
