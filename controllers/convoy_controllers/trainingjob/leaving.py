"""Plans a job that is being deleted. Kubernetes' garbage collection removes the job's pods, but cannot
remove those on lost nodes.
"""

from __future__ import annotations

from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import nodes
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_changes import delete_from_lost_node, unfenced_seconds


def plan(observed: Observed) -> Plan:
    """Delete the job's pods on lost nodes. The kubelets of these nodes cannot confirm that the pods have
    ended, and a foreground deletion of the job waits for this confirmation.
    """
    own = {pod.name: pod for pod in observed.pods if pod.owner_uid == observed.job.metadata.uid}
    lost = nodes.lost(observed)
    hanging = [pod for pod in own.values() if pod.node in lost and pod.deleting]
    found = [delete_from_lost_node(pod, unfenced_seconds(observed, own, pod)) for pod in hanging]
    deletions = tuple(one for one in found if one is not None)
    return Plan(children=deletions, requeue_after=1.0 if hanging else None)
