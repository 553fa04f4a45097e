"""Tests of the cluster and namespace that a kubeconfig selects, and of the error for an unusable
kubeconfig.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from convoy.client import NoCluster
from convoy.client.api import Api


def config(cluster: object = None, **context: object) -> bytes:
    body = {
        "clusters": [{"name": "c", "cluster": cluster or {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "x",
    }
    return yaml.safe_dump(body).encode()


@pytest.mark.parametrize(
    ("text", "namespace"),
    [
        (config(), "default"),
        (config(namespace="team"), "team"),
        (config(namespace=""), "default"),
        (config(namespace=None), "default"),
    ],
)
@pytest.mark.parametrize("context", [None, "x"])
def test_the_namespace_comes_from_the_context(
    tmp_path: Path, text: bytes, namespace: str, context: str | None
) -> None:
    path = tmp_path / "config"
    path.write_bytes(text)
    assert Api.connect(kubeconfig=path, context=context).namespace == namespace
    assert Api.connect("mine", context, path).namespace == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"clusters: [", "expected the node content"),
        (b"\xff\xfe", "can't decode"),
        (b"- a\n", "list indices"),
        (b"hello\n", "'str' object"),
        (config({"server": "https://h", "certificate-authority-data": "a"}), "base64"),
    ],
)
def test_a_malformed_kubeconfig_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text)
    with pytest.raises(NoCluster, match=f"the kubeconfig {path} cannot be read: .*{words}") as raised:
        Api.connect(kubeconfig=path)
    assert "\n" not in str(raised.value)


def test_an_absent_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    path = tmp_path / "none"
    with pytest.raises(NoCluster, match=f"no cluster: there is no kubeconfig {path}; set KUBECONFIG"):
        Api.connect(kubeconfig=path)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    with pytest.raises(NoCluster, match=f"there is no kubeconfig {path}; set KUBECONFIG"):
        Api.connect()
    path.write_bytes(config())
    with pytest.raises(NoCluster, match="nowhere"):
        Api.connect(context="nowhere")


def test_an_unreadable_kubeconfig_is_named_also_inside_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path))
    with pytest.raises(NoCluster, match=f"the kubeconfig {tmp_path} cannot be read: .*directory"):
        Api.connect()
