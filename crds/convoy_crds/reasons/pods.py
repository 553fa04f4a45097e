"""States of a job's pods before the ranks start."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class PodReasons:
    """States of a job's pods before the ranks start."""

    WAITING_FOR_PODS = Reason("WaitingForPods", "{ready} of {desired} pods are placed{more}")
    WAITING_FOR_AGENT = Reason(
        "WaitingForAgent",
        "no node carries the label convoy.dev/agent-ready=true: check the convoy-agent DaemonSet",
        warning=True,
    )
    UNSCHEDULABLE = Reason(
        "Unschedulable",
        "pod {pod} cannot be placed: {why}; {advice}",
        warning=True,
    )
    SCHEDULE_DEADLINE = Reason(
        "ScheduleDeadline",
        "not all pods were up within {seconds} s (spec.recovery.scheduleSeconds): {why}; gave them back, "
        "the next try is at {until}",
        warning=True,
    )
    SCHEDULE_RETRY = Reason(
        "ScheduleRetry",
        "{now}; the pods of the try before were given back, since {why}",
        warning=True,
    )
    ALL_SCHEDULED = Reason("AllScheduled", "all {desired} pods are placed")
    IMAGE_PULL = Reason(
        "ImagePullFailed",
        "pod {pod} on node {node}: image {image!r} cannot be pulled: {why}; check its name and "
        "imagePullSecrets, it is tried again",
        warning=True,
    )
    CONTAINER_CONFIG = Reason(
        "ContainerConfigError",
        "pod {pod} on node {node}: container {container} cannot be created: {why}",
        warning=True,
    )
    CONTAINER_FAILING = Reason(
        "ContainerFailing",
        "pod {pod} on node {node}: container {container} {how} and is started again and again. {words}; see "
        "kubectl logs {pod} -c {container} --previous",
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
        "a pod named {pod} exists and is not this job's; delete it or rename the job",
        warning=True,
    )
    STARTING_PODS = Reason(
        "StartingPods",
        "{ready} of {desired} pods are up; pod {pod} on node {node}: {state} (kubectl describe pod {pod})",
    )
    FENCING = Reason(
        "Fencing",
        "pod {pod} on lost node {node} may still run: it is replaced once its agent must have stopped it, "
        "{seconds} s after its last sign of life (spec.recovery.fencing: Strict)",
        warning=True,
    )
    FENCING_COMPANY = Reason(
        "FencingCompany",
        "pod {pod} on lost node {node} may still run: most of the job's nodes are silent, or hear of it, and "
        "keep one another going (spec.recovery.fencing: Strict); delete the Node object of each that is "
        "really gone",
        warning=True,
    )
    FENCING_ANSWERED = Reason(
        "FencingAnswered",
        "pod {pod} on node {node} answers, but nothing is heard of its agent: under spec.recovery.fencing: "
        "Strict it is replaced when the agent is back, or when its Node object is deleted",
        warning=True,
    )
