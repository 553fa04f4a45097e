"""Takes the pictures of the dashboard in docs/images: `pytest tests/integration/dashboard/pictures.py`.

The name of the file keeps it out of normal test runs.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from tests.integration.dashboard import chat, llama, samples, trial
from tests.integration.dashboard.conftest import ROOT, Browser, Cluster, Process, eventually
from tests.integration.dashboard.times import at

RESEARCH = "research"
AGES = {
    ("default", llama.NAME): llama.MADE,
    ("default", "gpt2-baseline"): 275,
    ("default", "moe-sweep-a"): 19,
    ("default", "moe-sweep-b"): 156,
    ("default", "rlhf-night"): 345,
    (RESEARCH, "odb-ablation-7"): 44,
    (RESEARCH, "tiny-probe"): 9,
    (RESEARCH, "vit-22b"): 28,
}
"""Age of each job in minutes, by namespace and name."""
DRAWN = (
    "return [...document.querySelectorAll('.chart canvas')].every((canvas) => canvas.getContext('2d')"
    ".getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"
)


@dataclass(frozen=True)
class Picture:
    """A picture of a page."""

    name: str
    path: str
    sign: str
    width: int
    height: int
    dark: bool = False


PICTURES = (
    Picture("overview", "/", "node-10", 1280, 2080),
    Picture("phone", "/", "node-10", 390, 1300, dark=True),
    Picture("job-dark", f"/jobs/default/{llama.NAME}", "NodeLost", 1280, 1930, dark=True),
    Picture("serving", "/serving/default/chat", "ran in all replicas", 1280, 1900),
    Picture("experiment", f"/experiments/default/{trial.NAME}", "offered requests", 1280, 1560),
    Picture("node", "/nodes/node-06", "sweep-64", 1280, 1240),
)


def etcd_request(cluster: Cluster, verb: str, **body: bytes) -> Any:
    """Send a request directly to the etcd of the API server."""
    encoded = {key: base64.b64encode(value).decode() for key, value in body.items()}
    request = urllib.request.Request(
        f"{cluster.plane.etcd_url}/v3/kv/{verb}", json.dumps(encoded).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def set_age(cluster: Cluster, plural: str, namespace: str, name: str, minutes: float) -> None:
    """Set a job's creation time directly in etcd, because the API server rejects such a change."""
    key = f"/registry/convoy.dev/{plural}/{namespace}/{name}".encode()
    (found,) = etcd_request(cluster, "range", key=key)["kvs"]
    body = json.loads(base64.b64decode(found["value"]))
    body["metadata"]["creationTimestamp"] = at(minutes=minutes)
    etcd_request(cluster, "put", key=key, value=json.dumps(body).encode())


def test_pictures(cluster: Cluster, dashboard: Process, browser: Browser) -> None:
    cluster.clear()
    cluster.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": RESEARCH}})
    samples.fill(cluster, RESEARCH)
    for (namespace, name), minutes in AGES.items():
        set_age(cluster, "trainingjobs", namespace, name, minutes)
    set_age(cluster, "servingjobs", "default", chat.NAME, 200)
    for one in PICTURES:
        browser.size(one.width, one.height)
        browser.dark(one.dark)
        browser.open(dashboard.url + one.path)
        browser.wait_for_text(one.sign)
        eventually(lambda: browser.run(DRAWN), what=f"charts of {one.path}")
        browser.save_screenshot(ROOT / f"docs/images/dashboard-{one.name}.png")
    assert browser.console_errors() == []
