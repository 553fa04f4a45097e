from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from convoy_agents.settings import Settings, SettingsError

NEEDED = {"CONVOY_NODE_NAME": "one", "CONVOY_POD_IP": "10.0.0.1"}


def test_defaults_are_those_of_the_chart() -> None:
    settings = Settings.from_env(NEEDED)
    assert (settings.node, settings.pod_ip) == ("one", "10.0.0.1")
    assert settings.hub == "convoy-hub.convoy-system.svc:8470"
    assert settings.session_address == "convoy-hub.convoy-system.svc:8471"
    assert (settings.peer_port, settings.metrics_port) == (8472, 8082)
    assert settings.run_dir == Path("/run/convoy")
    assert settings.stores_dir == Path("/var/lib/convoy/stores")
    assert settings.models_dir == Path("/var/lib/convoy/models")


def test_every_variable_is_read() -> None:
    values = {
        "CONVOY_NODE_NAME": "n", "CONVOY_POD_IP": "::1", "CONVOY_HUB": "h:1", "CONVOY_HUB_SESSION": "h:2",
        "CONVOY_TOKEN_FILE": "/t", "CONVOY_CA_FILE": "/c", "CONVOY_RUN_DIR": "/r", "CONVOY_KUBELET_DIR": "/k",
        "CONVOY_STORES_DIR": "/s", "CONVOY_MODELS_DIR": "/m",
        "CONVOY_MODEL_LIMIT": "1", "CONVOY_MODEL_RESERVE": "2", "CONVOY_MODEL_RESERVE_PERCENT": "15",
        "CONVOY_PEER_PORT": "3", "CONVOY_METRICS_PORT": "4", "CONVOY_GARBAGE_SECONDS": "5.5",
        "CONVOY_CHECKPOINT_MEMORY": "7", "CONVOY_COPY_RATE": "8.5", "CONVOY_SCRUB_SECONDS": "9.5",
        "CONVOY_PROBE_DIR": "/p", "CONVOY_PROBE_PYTHON": "/py",
        "CONVOY_FAULT_INJECTION": "true", "CONVOY_NODE_ROOT": "/n", "CONVOY_FAKE_NOTICES": "file:///f",
        "CONVOY_LOG_LEVEL": "DEBUG", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6",
    }  # fmt: skip
    assert {entry.metadata["env"] for entry in fields(Settings)} == set(values)
    assert Settings.from_env(values) == Settings(
        "n",
        "::1",
        "h:1",
        "h:2",
        Path("/t"),
        Path("/c"),
        Path("/r"),
        Path("/k"),
        Path("/s"),
        Path("/m"),
        1,
        2,
        15,
        3,
        4,
        "10.96.0.1",
        6,
        5.5,
        7,
        8.5,
        9.5,
        Path("/p"),
        "/py",
        True,
        Path("/n"),
        "file:///f",
        "DEBUG",
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"CONVOY_NODE_NAME": ""}, "CONVOY_NODE_NAME"),
        ({"CONVOY_PEER_PORT": "many"}, "CONVOY_PEER_PORT"),
        ({"CONVOY_RUN_DIR": "run"}, "CONVOY_RUN_DIR"),
        ({"CONVOY_RUN_DIR": "/" + "x" * 80}, "CONVOY_RUN_DIR"),
        ({"CONVOY_FAULT_INJECTION": "yes"}, "CONVOY_FAULT_INJECTION: 'yes' is not true or false"),
        ({"CONVOY_LOG_LEVEL": "LOUD"}, "CONVOY_LOG_LEVEL"),
    ],
)
def test_a_bad_variable_is_named(change: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.from_env({**NEEDED, **change})
