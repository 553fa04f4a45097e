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
CONDITIONS: Mapping[str, NoticeKind | None] = {
    # Node Problem Detector on Azure Kubernetes Service, from Scheduled Events
    "PreemptScheduled": NoticeKind.PREEMPTION,
    "PreemptionScheduled": NoticeKind.PREEMPTION,
    "TerminateScheduled": NoticeKind.REMOVAL,
    "VMEventScheduled": None,
}
"""Conditions of a Node that announce its end while their status is True, by type. None: only the message says
which event the condition announces.
"""
EVENTS: Mapping[str, NoticeKind] = {
    "Preempt": NoticeKind.PREEMPTION,
    "Terminate": NoticeKind.REMOVAL,
    "SpotRebalanceRecommendation": NoticeKind.REBALANCE,
}
"""Types of Azure's Scheduled Events that announce the end of a machine. The messages of the conditions begin
with the event's type, its status and, if it has one, its time: `Preempt Scheduled: Sat, 01 Aug 2026 05:41:02
GMT. For more information, see ...` (Azure/karpenter-provider-azure#1829).
"""
SPOT_TAINTS = ("kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot")
"""Taints by which providers keep other pods off their spot nodes. Pods of every pool tolerate them."""
