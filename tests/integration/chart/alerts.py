"""Cases for every alert: series with which it fires, its labels, and series with which it does not fire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = Mapping[str, str]
"""Values of each series in promtool's notation, with one value per minute."""

OPERATOR = 'instance="op-1"'
STANDBY = 'instance="op-2"'
LEADS = {f"convoy_leader{{{OPERATOR}}}": "1x500"}
AGENT = 'instance="node-1"'
PAGES = 'instance="dashboard"'
FAILED = f'convoy_jobs{{{OPERATOR},phase="Failed"}}'
HOUR, DAY = 3600, 86400
ENDS = "convoy_hub_certificate_expiry_timestamp_seconds"


@dataclass(frozen=True)
class Case:
    """The cases for one alert. promtool evaluates the alert after `minutes`."""

    fires: Series
    quiet: Mapping[str, Series]
    labels: Mapping[str, str] = field(default_factory=dict)
    minutes: int = 60


def growing(step: float) -> str:
    """Return the values of a counter that grows by `step` per minute."""
    return f"0+{step}x500"


def windows(reported: float, dropped: float) -> Series:
    """Return the counters of step windows: the reported windows and the dropped windows, each per minute."""
    name = f"convoy_guard_windows{{}}_total{{{{{OPERATOR}}}}}"
    return {name.format(""): growing(reported), name.format("_dropped"): growing(dropped)}


def goodput(productive: float, lost: float, queue: float = 0.0) -> Series:
    """Return the goodput counters with these numbers of seconds per minute, by cause."""
    seconds = {"productive": productive, "recompute": lost, "queue": queue}
    name = "convoy_goodput_seconds_total"
    return {f'{name}{{{OPERATOR},cause="{cause}"}}': growing(count) for cause, count in seconds.items()}


def commits(committed: float, stale: float) -> Series:
    name = "convoy_agent_commits_total"
    counts = {"committed": committed, "stale": stale}
    return {f'{name}{{{AGENT},verdict="{verdict}"}}': growing(count) for verdict, count in counts.items()}


def waits(under: float, more: float) -> Series:
    """Return the histogram of a queue. Per minute, `under` keys wait up to 0.5 s, and `more` keys wait up
    to 10 s.
    """
    name = "convoy_queue_seconds_bucket"
    return {
        f'{name}{{{OPERATOR},le="0.5"}}': growing(under),
        f'{name}{{{OPERATOR},le="10"}}': growing(under + more),
        f'{name}{{{OPERATOR},le="+Inf"}}': growing(under + more),
    }


def api(good: float, bad: float, code: str, of: str = OPERATOR) -> Series:
    name = "convoy_api_requests_total"
    return {
        **LEADS,
        f'{name}{{{of},code="200"}}': growing(good),
        f'{name}{{{of},code="{code}"}}': growing(bad),
    }


def errors(cause: str, step: float) -> Series:
    return {
        f'convoy_reconcile_errors_total{{{OPERATOR},kind="TrainingJob",cause="{cause}"}}': growing(step),
        f'convoy_reconcile_errors_total{{instance="op-2",kind="TrainingJob",cause="{cause}"}}': "0x500",
    }


def queue(depth: str, reconciles: str, of: str = OPERATOR, leads: str = "1x500") -> Series:
    return {
        f"convoy_leader{{{of}}}": leads,
        f"convoy_queue_depth{{{of}}}": depth,
        f'convoy_reconcile_seconds_count{{{of},kind="TrainingJob"}}': reconciles,
    }


def beside_the_leader(series: str, values: str) -> Series:
    return {**LEADS, f"{series}{{{OPERATOR}}}": values}


def of_a_former_leader(series: str) -> Series:
    return {f"convoy_leader{{{OPERATOR}}}": "0x500", f"{series}{{{OPERATOR}}}": "5x500"}


def dropped(cause: str, step: float) -> Series:
    return {f'convoy_events_dropped_total{{{OPERATOR},cause="{cause}"}}': growing(step)}


def enrolments(outcome: str, step: float) -> Series:
    return {f'convoy_enrolments_total{{{OPERATOR},outcome="{outcome}"}}': growing(step)}


def unavailable(agents: str, daemonset: str = "convoy-agent") -> Series:
    """Return the series for unavailable agents in the form that kube-state-metrics exports."""
    labels = f'namespace="convoy-system",daemonset="{daemonset}"'
    return {f"kube_daemonset_status_number_unavailable{{{labels}}}": agents}


def canaries(result: str) -> Series:
    return {f'convoy_guard_canaries_total{{{OPERATOR},result="{result}"}}': "0x30 1x470"}


def serving(reason: str, instance: str = OPERATOR) -> str:
    """Return the series of ServingJobs that need a person for one reason."""
    return f'convoy_serving_jobs_need_attention{{{instance},reason="{reason}"}}'


def spot(reason: str, instance: str = OPERATOR) -> str:
    """Return the series of the SpotPools with a reason."""
    return f'convoy_spot_pools_need_attention{{{instance},reason="{reason}"}}'


CASES = {
    "ConvoyLeaderAbsent": Case(
        {f"convoy_leader{{{OPERATOR}}}": "1x50 0x450", 'convoy_leader{instance="op-2"}': "0x500"},
        {
            "the other leads": {**LEADS, 'convoy_leader{instance="op-2"}': "0x500"},
            "a moment between two leaders": {
                f"convoy_leader{{{OPERATOR}}}": "1x57 0x443",
                'convoy_leader{instance="op-2"}': "0x58 1x440",
            },
        },
    ),
    "ConvoyReconcileErrors": Case(
        errors("bug", 6),
        {"few": errors("bug", 0.6), "conflicts are part of the work": errors("conflict", 60)},
        {"kind": "TrainingJob", "cause": "bug"},
    ),
    "ConvoyQueueStuck": Case(
        queue("3x500", "100x500"),
        {
            "it moves": queue("3x500", growing(60)),
            "nobody waits": queue("0x500", "100x500"),
            "a standby has a queue that nobody works at": {
                **queue("0x500", "100x500"),
                **queue("8x500", "0x500", STANDBY, "0x500"),
            },
            "it moves, and a standby has a queue": {
                **queue("3x500", growing(60)),
                **queue("8x500", "0x500", STANDBY, "0x500"),
            },
            "a standby has come to lead": {
                **queue("0x57 _x443", "100x57 _x443", OPERATOR, "1x57 _x443"),
                **queue("8x58 2x442", "0x58 50x442", STANDBY, "0x58 1x442"),
            },
        },
    ),
    "ConvoyQueueSlow": Case(waits(10, 10), {"all are soon served": waits(20, 0)}),
    "ConvoyApiBudgetWaits": Case(
        beside_the_leader("convoy_api_throttle_seconds_total", growing(120)),
        {
            "now and then": beside_the_leader("convoy_api_throttle_seconds_total", growing(6)),
            "the dashboard does": {**LEADS, f"convoy_api_throttle_seconds_total{{{PAGES}}}": growing(120)},
        },
        {"instance": "op-1"},
    ),
    "ConvoyApiErrors": Case(
        api(90, 10, "503"),
        {
            "few": api(99, 1, "503"),
            "what is not there is an answer": api(50, 50, "404"),
            "the dashboard's": api(0, 100, "503", PAGES),
        },
    ),
    "ConvoyEventsDropped": Case(
        dropped("refused", 1),
        {"repetitions are left out on purpose": dropped("repeated", 10), "few": dropped("refused", 0.1)},
        {"cause": "refused"},
    ),
    "ConvoyCommandsDropped": Case(
        {f"convoy_agent_commands_dropped_total{{{OPERATOR}}}": growing(5)},
        {"as an agent restarts": {f"convoy_agent_commands_dropped_total{{{OPERATOR}}}": growing(0.5)}},
    ),
    "ConvoyEnrolmentsRefused": Case(
        enrolments("refused", 1), {"agents are given theirs": enrolments("issued", 60)}
    ),
    "ConvoyWatchSilent": Case(
        {f'convoy_watch_heard_timestamp_seconds{{{OPERATOR},resource="pods"}}': "1000x500"},
        {
            "events each minute": {
                f'convoy_watch_heard_timestamp_seconds{{{OPERATOR},resource="pods"}}': growing(60)
            },
            "not watched": {f'convoy_watch_heard_timestamp_seconds{{{OPERATOR},resource="pods"}}': "0x500"},
        },
        {"instance": "op-1", "resource": "pods"},
    ),
    "ConvoyHubCertificateEnding": Case(
        {f'{ENDS}{{{OPERATOR},certificate="hub"}}': f"{20 * DAY}x500"},
        {
            "a year is left": {f'{ENDS}{{{OPERATOR},certificate="hub"}}': f"{365 * DAY}x500"},
            "not known": {f'{ENDS}{{{OPERATOR},certificate="hub"}}': "0x500"},
        },
        {"instance": "op-1", "certificate": "hub"},
        minutes=90,
    ),
    "ConvoyAgentsSilent": Case(
        beside_the_leader("convoy_nodes_silent", "2x500"),
        {
            "none": beside_the_leader("convoy_nodes_silent", "0x500"),
            "reported by a former leader": of_a_former_leader("convoy_nodes_silent"),
            "for a restart": beside_the_leader("convoy_nodes_silent", "0x55 2x445"),
        },
        {"instance": "op-1"},
    ),
    "ConvoyAgentsUnavailable": Case(
        unavailable("1x500"),
        {
            "none": unavailable("0x500"),
            "as they are updated": unavailable("0x50 2x450"),
            "somebody else's": unavailable("1x500", "other"),
        },
        {"daemonset": "convoy-agent", "namespace": "convoy-system"},
    ),
    "ConvoyAgentsSilentAlarm": Case(
        beside_the_leader("convoy_agents_silent_alarm", "1x500"),
        {
            "none": beside_the_leader("convoy_agents_silent_alarm", "0x500"),
            "reported by a former leader": of_a_former_leader("convoy_agents_silent_alarm"),
        },
        {"instance": "op-1"},
    ),
    "ConvoyAgentSessionDown": Case(
        {f"convoy_agent_session_up{{{AGENT}}}": "1x20 0x480"},
        {
            "up": {f"convoy_agent_session_up{{{AGENT}}}": "1x500"},
            "for a moment": {f"convoy_agent_session_up{{{AGENT}}}": "1x57 0x443"},
        },
        {"instance": "node-1"},
    ),
    "ConvoyAgentNotRegistered": Case(
        {f"convoy_agent_csi_registered{{{AGENT}}}": "0x500"},
        {"registered": {f"convoy_agent_csi_registered{{{AGENT}}}": "1x500"}},
        {"instance": "node-1"},
    ),
    "ConvoyAgentCertificateEnding": Case(
        {f"convoy_agent_certificate_expiry_timestamp_seconds{{{AGENT}}}": f"{4 * HOUR}x500"},
        {
            "eight hours are left": {
                f"convoy_agent_certificate_expiry_timestamp_seconds{{{AGENT}}}": f"{9 * HOUR}x500"
            },
            "there is none yet": {f"convoy_agent_certificate_expiry_timestamp_seconds{{{AGENT}}}": "0x500"},
        },
        {"instance": "node-1"},
    ),
    "ConvoyStrictJobStopped": Case(
        {f"convoy_agent_fenced_total{{{AGENT}}}": "0x55 1x445"},
        {"long ago": {f"convoy_agent_fenced_total{{{AGENT}}}": "0x10 1x490"}},
        {"instance": "node-1"},
    ),
    "ConvoyFaultNotUndone": Case(
        {f"convoy_agent_faults_overdue{{{AGENT}}}": "1x500"},
        {
            "undone at once": {f"convoy_agent_faults_overdue{{{AGENT}}}": "0x500"},
            "undone at the second attempt": {f"convoy_agent_faults_overdue{{{AGENT}}}": "0x58 1x1 0x441"},
        },
        {"instance": "node-1"},
    ),
    "ConvoyJobsFailed": Case(
        {**LEADS, FAILED: "1x80 2x420"},
        {
            "failed long ago": {**LEADS, FAILED: "2x500"},
            "one was deleted": {**LEADS, FAILED: "2x80 1x420"},
            "another leads from now on": {
                f"convoy_leader{{{OPERATOR}}}": "1x80 0x420",
                FAILED: "2x80 0x420",
                'convoy_leader{instance="op-2"}': "0x83 1x417",
                'convoy_jobs{instance="op-2",phase="Failed"}': "0x83 2x417",
            },
            "two leaders during a change": {
                f"convoy_leader{{{OPERATOR}}}": "1x90 stale",
                FAILED: "2x90 stale",
                'convoy_leader{instance="op-2"}': "_x88 1x400",
                'convoy_jobs{instance="op-2",phase="Failed"}': "_x88 2x400",
            },
        },
        minutes=90,
    ),
    "ConvoyJobsNeedAttention": Case(
        {**LEADS, f'convoy_jobs_need_attention{{{OPERATOR},reason="InvalidSpec"}}': "1x500"},
        {
            "none": {**LEADS, f'convoy_jobs_need_attention{{{OPERATOR},reason="InvalidSpec"}}': "0x500"},
            "for a moment": {
                **LEADS,
                f'convoy_jobs_need_attention{{{OPERATOR},reason="BackOff"}}': "0x40 1x460",
            },
        },
        {"reason": "InvalidSpec"},
    ),
    "ConvoyServingUnavailable": Case(
        {**LEADS, serving("MinimumReplicasUnavailable"): "1x500"},
        {
            "none": {**LEADS, serving("MinimumReplicasUnavailable"): "0x500"},
            "for a moment": {**LEADS, serving("MinimumReplicasUnavailable"): "0x59 1x440"},
            "a standby's series": {**LEADS, serving("MinimumReplicasUnavailable", STANDBY): "1x500"},
            "another reason": {**LEADS, serving("ModelMissing"): "1x500"},
        },
    ),
    "ConvoyServingRolloutHalted": Case(
        {**LEADS, serving("RevisionFailed"): "1x500"},
        {
            "none": {**LEADS, serving("RevisionFailed"): "0x500"},
            "for a moment": {**LEADS, serving("RevisionFailed"): "0x59 1x440"},
            "a standby's series": {**LEADS, serving("RevisionFailed", STANDBY): "1x500"},
            "another reason": {**LEADS, serving("ModelMissing"): "1x500"},
        },
        {"reason": "RevisionFailed"},
    ),
    "ConvoyServingReplicaFailed": Case(
        {**LEADS, serving("ReplicaFailed"): "1x500"},
        {
            "none": {**LEADS, serving("ReplicaFailed"): "0x500"},
            "for a moment": {**LEADS, serving("ReplicaFailed"): "0x59 1x440"},
            "a standby's series": {**LEADS, serving("ReplicaFailed", STANDBY): "1x500"},
            "another reason": {**LEADS, serving("ModelMissing"): "1x500"},
        },
    ),
    "ConvoyServingObjectivesMissed": Case(
        {**LEADS, serving("ObjectivesMissed"): "1x500"},
        {
            "none": {**LEADS, serving("ObjectivesMissed"): "0x500"},
            "for a moment": {**LEADS, serving("ObjectivesMissed"): "0x59 1x440"},
            "a standby's series": {**LEADS, serving("ObjectivesMissed", STANDBY): "1x500"},
            "another reason": {**LEADS, serving("ModelMissing"): "1x500"},
        },
    ),
    "ConvoyServingNeedsAttention": Case(
        {**LEADS, serving("ModelMissing"): "1x500"},
        {
            "none": {**LEADS, serving("ModelMissing"): "0x500"},
            "for a moment": {**LEADS, serving("ModelMissing"): "0x59 1x440"},
            "a standby's series": {**LEADS, serving("ModelMissing", STANDBY): "1x500"},
            "another reason": {**LEADS, serving("ReplicaFailed"): "1x500"},
        },
        {"reason": "ModelMissing"},
    ),
    "ConvoySpotPoolNeedsAttention": Case(
        {**LEADS, spot("PriceStale"): "1x500"},
        {
            "none": {**LEADS, spot("PriceStale"): "0x500"},
            "for a moment": {**LEADS, spot("PriceStale"): "0x59 1x440"},
            "a standby's series": {**LEADS, spot("PriceStale", STANDBY): "1x500"},
        },
        {"reason": "PriceStale"},
    ),
    "ConvoyGoodputLow": Case(
        goodput(30, 30),
        {
            "high": goodput(55, 5),
            "waiting for room is no fault": goodput(30, 0, queue=600),
            "too little to tell": goodput(3, 3),
        },
        minutes=400,
    ),
    "ConvoyCommitsFailing": Case(commits(1, 1), {"few": commits(9, 1), "none is requested": commits(0, 0)}),
    "ConvoyCheckpointsLost": Case(
        {f'convoy_agent_checkpoint_restores_total{{{AGENT},outcome="lost"}}': "0x30 1x470"},
        {"found": {f'convoy_agent_checkpoint_restores_total{{{AGENT},outcome="found"}}': "0x30 1x470"}},
    ),
    "ConvoyStoreFailing": Case(
        {f"convoy_agent_checkpoint_store_errors_total{{{AGENT}}}": growing(2)},
        {"now and then": {f"convoy_agent_checkpoint_store_errors_total{{{AGENT}}}": growing(0.1)}},
        {"instance": "node-1"},
    ),
    "ConvoyCheckpointsDamaged": Case(
        {f"convoy_agent_checkpoint_damaged_total{{{AGENT}}}": "0x30 1x470"},
        {"none": {f"convoy_agent_checkpoint_damaged_total{{{AGENT}}}": "0x500"}},
        {"instance": "node-1"},
    ),
    "ConvoyGuardBreakerOpen": Case(
        beside_the_leader("convoy_guard_breakers_open", "1x500"),
        {
            "closed": beside_the_leader("convoy_guard_breakers_open", "0x500"),
            "reported by a former leader": of_a_former_leader("convoy_guard_breakers_open"),
        },
        {"instance": "op-1"},
    ),
    "ConvoyDetectorBlind": Case(
        canaries("Missed"), {"detected": canaries("Detected"), "no peers": canaries("Untested")}
    ),
    "ConvoyGuardWindowsDropped": Case(
        windows(60, 12), {"few": windows(60, 3), "none is reported": windows(0, 0)}
    ),
}
