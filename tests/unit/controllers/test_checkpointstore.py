"""Tests of the conditions of a CheckpointStore."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from convoy_controllers.checkpointstore.observed import Observed, Probe, Secret
from convoy_controllers.checkpointstore.plan import plan
from convoy_controllers.testing.builders import NOW, make_store
from convoy_crds.checkpointstore import CheckpointStoreStatus

GOOD = Probe("n1", NOW, reached=True, conditional=True, checksums=True, message="all works")
DEAF = Probe("n1", NOW, reached=True, conditional=False, checksums=True)
DOWN = Probe("n2", NOW, reached=False, message="connection refused")


AWAY = Probe("n2", NOW, reached=False, unmounted=True, message="claim disk: it is not mounted at /x/disk")
DISK = make_store("disk", ready="", s3=None, volume={"claimName": "disk"})


def observed(**more: Any) -> Observed:
    return Observed(**{"store": make_store(ready=""), "namespace": "convoy-system", **more})


def after(seen: Observed) -> Observed:
    """Return the observation with the status that its plan stores."""
    made = plan(seen, NOW)
    assert made.status is not None
    store = seen.store.model_copy(update={"status": CheckpointStoreStatus.model_validate(made.status)})
    return replace(seen, store=store)


@pytest.mark.parametrize(
    ("facts", "holds", "reason", "words"),
    [
        ({"probe": GOOD}, "True", "Probed", "can commit checkpoints to the store: all works"),
        ({"probe": replace(GOOD, checksums=False)}, "True", "Probed", ""),
        ({"probe": DEAF}, "False", "NoConditionalWrites", "Amazon S3, Cloudflare R2"),
        ({"probe": DOWN}, "False", "StoreUnreachable", "node n2 could not use the store: connection refused"),
        ({}, "False", "NotProbed", "check the convoy-agent DaemonSet"),
        ({"probing_node": "n3"}, "False", "NotProbed", "the agent of node n3 is probing it"),
        (
            {"secret": Secret(unreadable="there is none; create it"), "probe": GOOD},
            "False",
            "SecretNotFound",
            "credentialsSecret: Secret 'keys' in namespace 'convoy-system' cannot be read: there is none",
        ),
        (
            {"secret": Secret(missing=("accessKey", "secretKey")), "probe": GOOD},
            "False",
            "SecretIncomplete",
            "has no accessKey and no secretKey",
        ),
        ({"secret": Secret(missing=("secretKey",))}, "False", "SecretIncomplete", "has no secretKey; add it"),
        ({"store": DISK}, "False", "NotProbed", "check the convoy-agent DaemonSet"),
        (
            {"store": DISK, "probe": GOOD},
            "True",
            "Probed",
            "can commit checkpoints to the store: all works",
        ),
        ({"store": DISK, "probe": DOWN}, "False", "StoreUnreachable", "node n2 could not use the store"),
        ({"store": DISK, "probe": DEAF}, "False", "NoHardLinks", "'disk' does not support hard links"),
        (
            {"store": DISK, "probe": AWAY},
            "False",
            "ClaimNotMounted",
            "'disk' is not mounted into the agent of node n2; add it to agent.storeVolumes",
        ),
    ],
)
def test_ready_condition_has_the_expected_reason(
    facts: dict[str, Any], holds: str, reason: str, words: str
) -> None:
    made = plan(observed(**facts), NOW)
    assert made.status is not None
    (condition,) = made.status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", holds, reason)
    assert words in condition["message"]
    assert made.status["observedGeneration"] == 1
    assert [event.reason.name for event in made.events] == ([] if reason == "NotProbed" else [reason])
    assert made.requeue_after == 60, "a Secret is not watched"
    again = plan(after(observed(**facts)), NOW + timedelta(seconds=60))
    assert again.status is None and again.events == () and again.requeue_after == 60


def test_capabilities_stay_while_the_store_is_unreachable() -> None:
    seen = after(observed(probe=GOOD))
    lost = after(replace(seen, probe=replace(DOWN, at=NOW + timedelta(hours=1))))
    status = lost.store.status
    assert status.capabilities and status.capabilities.conditional_writes and status.capabilities.checksums
    assert (status.probed_by, status.probed_at) == ("n2", NOW + timedelta(hours=1))
    unknown = after(replace(lost, probe=None, secret=Secret(missing=("secretKey",))))
    assert unknown.store.status.capabilities == status.capabilities


def test_unchanged_reason_emits_no_event_and_keeps_its_time() -> None:
    seen = after(observed(probe=DOWN))
    again = plan(replace(seen, probe=replace(DOWN, node="n3", message="timeout")), NOW + timedelta(minutes=5))
    assert again.status is not None and again.events == ()
    (condition,) = again.status["conditions"]
    assert "n3" in condition["message"]
    assert condition["lastTransitionTime"] == NOW.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("fresh", "generation", "stored", "kept"),
    [
        pytest.param(True, 1, GOOD, True, id="renewed credentials, or a new leader"),
        pytest.param(False, 1, GOOD, False, id="nobody answered"),
        pytest.param(True, 2, GOOD, False, id="the spec is another"),
        pytest.param(True, 1, DOWN, False, id="it was not ready before"),
    ],
)
def test_ready_condition_stays_until_a_new_probe_is_due(
    fresh: bool, generation: int, stored: Probe, kept: bool
) -> None:
    seen = after(observed(probe=stored))
    seen.store.metadata.generation = generation
    made = plan(replace(seen, probe=None, fresh=fresh), NOW)
    assert (made.status is None) is kept
    assert made.requeue_after is not None and (made.requeue_after < 60) is kept
