"""Tests of the timings that agents, operator and simulator share. Each is defined once, and waits are
computed from it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy_agents import hub_client as hub_link
from convoy_agents import isolation, outbox
from convoy_controllers import queue_timings
from convoy_controllers.liveness import attestation, fence, timings
from convoy_controllers.progress_throttle import PROGRESS_SECONDS
from convoy_controllers.simulate import fences, operator_model
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob import nodes, pod_changes, recovering
from convoy_controllers.workers.faults import Fault
from convoy_crds.reasons.catalogue import Reasons
from convoy_operator.hub import sessions
from convoy_operator.settings import Settings


def test_the_fencing_time_of_agents_operator_and_simulator_is_one_constant() -> None:
    assert isolation.fence is fence is fences.fence
    assert nodes.REPLACE_SECONDS is pod_changes.REPLACE_SECONDS is fence.REPLACE_SECONDS
    assert attestation.FENCE_SECONDS is fence.FENCE_SECONDS
    assert fence.REPLACE_SECONDS == fence.FENCE_SECONDS + timings.STOP_SECONDS


def test_settings_and_latencies_default_to_the_timings() -> None:
    settings, latencies = Settings(), Latencies()
    assert settings.agent_silent_seconds == latencies.silent == timings.SILENT_SECONDS
    assert settings.agent_grace_seconds == latencies.grace == timings.GRACE_SECONDS
    assert settings.agent_unready_seconds == latencies.farewell == timings.UNREADY_SECONDS
    assert settings.progress_seconds == latencies.progress_write == PROGRESS_SECONDS
    assert hub_link.HEARTBEAT_SECONDS == latencies.heartbeat == timings.HEARTBEAT_SECONDS
    assert settings.debounce_seconds == latencies.debounce == queue_timings.DEBOUNCE_SECONDS
    assert settings.backoff_min_seconds == operator_model.BACKOFF_MIN_SECONDS
    assert outbox.REPORT_SECONDS == timings.REPORT_SECONDS


def test_timeouts_exceed_the_timeouts_they_depend_on() -> None:
    assert hub_link.WELCOME_SECONDS > sessions.HOLD_SECONDS
    assert fence.LEASE_SECONDS > timings.KUBELET_LEASE_SECONDS
    assert timings.SILENT_SECONDS > timings.PROBE_AFTER_SECONDS + timings.PROBE_SECONDS
    assert attestation.REMEMBER_SECONDS > fence.FENCE_SECONDS


@pytest.mark.parametrize(("silent", "waits"), [(5.0, 7.0), (12.0, 14.0)])
def test_the_wait_for_a_verdict_follows_the_silence_setting(silent: float, waits: float) -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle()
    observed = replace(cluster.observed(), silent_seconds=silent)
    error = Fault(Reasons.RANK_FAILED, "", exit_code=1, at=cluster.now.timestamp())
    assert len({pod.node for pod in observed.pods}) > 1
    assert recovering._verdict_seconds(observed, error, cluster.now) == pytest.approx(waits)
