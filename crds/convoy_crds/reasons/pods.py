"""Reasons about a job's pods before the ranks start."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class PodReasons:
    """Reasons about a job's pods before the ranks start."""

    WAITING_FOR_PODS = Reason("WaitingForPods", "{ready} of {desired} pods are scheduled{more}")
    WAITING_FOR_AGENT = Reason(
        "WaitingForAgent",
        "no node has the label convoy.dev/agent-ready=true: check the convoy-agent DaemonSet",
        warning=True,
    )
    UNSCHEDULABLE = Reason("Unschedulable", "pod {pod} cannot be scheduled: {why}; {advice}", warning=True)
    SCHEDULE_DEADLINE = Reason(
        "ScheduleDeadline",
        "not all pods started within {seconds} s (spec.recovery.scheduleSeconds): {why}; Convoy deleted all "
        "pods of the job and tries again at {until}. Correct the cause, or raise "
        "spec.recovery.scheduleSeconds",
        warning=True,
    )
    SCHEDULE_RETRY = Reason(
        "ScheduleRetry",
        "{now}; Convoy deleted the pods of the previous attempt: {why}",
        warning=True,
    )
    ALL_SCHEDULED = Reason("AllScheduled", "all {desired} pods are scheduled")
    IMAGE_PULL = Reason(
        "ImagePullFailed",
        "pod {pod} on node {node}: image {image!r} cannot be pulled: {why}; check the image's name and "
        "imagePullSecrets; the kubelet tries again",
        warning=True,
    )
    CONTAINER_CONFIG = Reason(
        "ContainerConfigError",
        "pod {pod} on node {node}: container {container} cannot be created: {why}; create what is missing, "
        "or correct the role's template",
        warning=True,
    )
    CONTAINER_FAILING = Reason(
        "ContainerFailing",
        "pod {pod} on node {node}: container {container} {how} and keeps restarting. {words}; see kubectl "
        "logs {pod} -c {container} --previous",
        warning=True,
    )
    POD_NOT_STARTING = Reason(
        "PodNotStarting",
        "pod {pod} on node {node} does not start: {event}: {why} (kubectl describe pod {pod})",
        warning=True,
    )
    POD_REJECTED = Reason(
        "PodRejected",
        "the API server refused pod {pod}: {why}; {advice}",
        warning=True,
    )
    POD_CONFLICT = Reason(
        "PodNameTaken",
        "pod {pod} exists but does not belong to this job; delete the pod or rename the job",
        warning=True,
    )
    STARTING_PODS = Reason(
        "StartingPods",
        "{ready} of {desired} pods have started; pod {pod} on node {node}: {state} (kubectl describe pod "
        "{pod})",
    )
    FENCING = Reason(
        "Fencing",
        "pod {pod} on lost node {node} may still run. Convoy replaces the pod {seconds} s after the last "
        "heartbeat of the node's agent, because by then the agent, if it still runs, has "
        "stopped the pod (spec.recovery.fencing: Strict)",
        warning=True,
    )
    FENCING_COMPANY = Reason(
        "FencingCompany",
        "Convoy does not replace pod {pod} on lost node {node} yet: the node's agent may reach a majority "
        "of the job's nodes and keep the ranks running (spec.recovery.fencing: Strict); delete the Node "
        "object of each node that no longer exists",
        warning=True,
    )
    FENCING_ANSWERED = Reason(
        "FencingAnswered",
        "pod {pod} on node {node} still responds, but the node's agent does not report; Convoy replaces the "
        "pod when the agent is back, or when the Node object is deleted (spec.recovery.fencing: Strict)",
        warning=True,
    )
