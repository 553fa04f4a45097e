"""Marks by which other controllers and providers announce the end of a node, and mark spot nodes. They are
only read.
"""

from __future__ import annotations

from collections.abc import Mapping

from convoy_crds.spotpool_status import NoticeKind

TAINTS: Mapping[str, NoticeKind] = {
    # aws-node-termination-handler, pkg/node/node.go
    "aws-node-termination-handler/spot-itn": NoticeKind.PREEMPTION,
    "aws-node-termination-handler/rebalance-recommendation": NoticeKind.REBALANCE,
    # Google Kubernetes Engine, graceful node shutdown
    "cloud.google.com/impending-node-termination": NoticeKind.PREEMPTION,
    # Azure Kubernetes Service, node auto-drain
    "remediator.kubernetes.azure.com/unschedulable": NoticeKind.PREEMPTION,
    # Karpenter: interruptions and its own consolidation carry the same taint.
    "karpenter.sh/disrupted": NoticeKind.REMOVAL,
    # Cluster Autoscaler, before it deletes the node
    "ToBeDeletedByClusterAutoscaler": NoticeKind.REMOVAL,
}
"""Taints that announce the end of a node, by key."""
CONDITIONS: Mapping[str, NoticeKind] = {
    # Node Problem Detector on Azure, from Scheduled Events
    "PreemptScheduled": NoticeKind.PREEMPTION,
    "TerminateScheduled": NoticeKind.REMOVAL,
}
"""Conditions of a Node that announce its end while their status is True, by type."""
SPOT_TAINTS = ("kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot")
"""Taints by which providers keep other pods off their spot nodes. Pods of every pool tolerate them."""
