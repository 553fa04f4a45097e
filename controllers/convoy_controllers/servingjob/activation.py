"""Scale to zero: keeps activators while no replica is wanted, and decides where the Service leads.

Activators are pods that hold requests. They are groups of the role `ROLE`, beside the roles of the spec: the
same code forms, restarts and replaces them. Their revision depends only on the Engine, on the port, on the
token, on `holdSeconds` and on the template's scheduling, so a roll of the model leaves them alone. It is not
stored.

To zero: two activators start. When one has been ready for the endpoint lag, the Service is switched to them.
Until the Service is known to lead there, one replica stays.

From zero: replicas start. As soon as one is ready, the activators get its address and pass their requests on.
When one has been ready for the endpoint lag, the Service is switched back. When it is known to lead there,
the activators are deleted; they drain until their last request has ended.

Everything follows from the pods and the Service as they are now. A plan that is lost is made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from convoy_controllers.children import Apply
from convoy_controllers.commands import Endpoints
from convoy_controllers.servingjob import children, repair, rollout
from convoy_controllers.servingjob.groups import Group
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.pods import ACTIVATORS, REPLICAS, address, labels
from convoy_controllers.servingjob.revision import Revision, RevisionSpec, RoleRevision, digest
from convoy_controllers.servingjob.rollout import Budget, Goal, Unit
from convoy_controllers.servingjob.work import Work
from convoy_crds.podtemplate import PodTemplate
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_scaling import DEFAULT_HOLD_SECONDS
from convoy_crds.terms import ENGINE_ACTIVATOR, LABEL_ROLE, ROLE_ACTIVATOR

ROLE = ROLE_ACTIVATOR
COUNT = 2
"""Number of activators of a job. One suffices; with two, the loss of a node loses only half of the requests.
"""
DRAIN_SECONDS = 600
"""Default of the minimum seconds for which an activator that is being deleted may pass on its requests."""
MAX_ADDRESSES = 64
"""Maximum number of replicas of which the activators learn."""
SWITCH_SECONDS = 1.0
"""Seconds until the next plan looks whether the Service has been switched."""
RESEND_SECONDS = 5.0
"""Seconds until an address that no agent has confirmed is sent again."""
_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
"""Resources of an activator: 128 requests of at most 1 MiB each, and the server."""
_SCHEDULING = ("imagePullSecrets", "tolerations", "priorityClassName", "schedulerName", "runtimeClassName")
"""Fields of the template of the serving role that the activators share. They need no node with a GPU."""


@dataclass(frozen=True, slots=True)
class Activation:
    """The decision of one plan."""

    front: str
    """Pods to which the Service leads: `REPLICAS` or `ACTIVATORS`."""
    desired: int
    """Number of activators."""
    kept: int
    """Number of replicas that stay although none is wanted, because the Service still leads to them."""


def revision(observed: Observed, target: RevisionSpec) -> Revision | None:
    """Return the revision of the activators; None if there is no Engine for them. `target` is the revision to
    which the replicas roll.
    """
    engine = observed.engines.get(ENGINE_ACTIVATOR)
    if engine is None:
        return None
    hold = hold_seconds(observed.job)
    role = RoleRevision(
        name=ROLE,
        engine=ENGINE_ACTIVATOR,
        # The Engine has the same default.
        params={"hold_seconds": hold} if hold != DEFAULT_HOLD_SECONDS else {},
        image=engine.spec.image,
        command=list(engine.spec.command),
        template=_template(observed.job),
    )
    spec = RevisionSpec(
        roles=[role],
        serving_role=ROLE,
        port=target.port,
        drain_seconds=max(target.drain_seconds, drain_seconds(observed.job)),
        token_secret=target.token_secret,
    )
    return Revision(digest(spec), 0, spec)


def hold_seconds(job: ServingJob) -> int:
    """Return the longest time in seconds for which the job's activators hold a request."""
    role = job.spec.role(job.spec.serving_role)
    return role.scaling.hold_seconds if role and role.scaling else DEFAULT_HOLD_SECONDS


def drain_seconds(job: ServingJob) -> int:
    """Return the minimum seconds for which an activator that is being deleted may pass on its requests."""
    return max(DRAIN_SECONDS, hold_seconds(job))


def is_own(revision: Revision) -> bool:
    """Return True if a revision is that of activators."""
    return revision.spec.serving_role == ROLE


def _template(job: ServingJob) -> PodTemplate:
    role = next((one for one in job.spec.roles if one.name == job.spec.serving_role), None)
    given = role.template.to_dict().get("spec") or {} if role and role.template else {}
    own = {"matchLabels": labels(job.metadata.name, ROLE)}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}
    spec: dict[str, Any] = {
        **{name: given[name] for name in _SCHEDULING if given.get(name)},
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
            }
        },
        # A warm start would import torch, which an activator does not need.
        "containers": [{"resources": _RESOURCES, "env": [{"name": "CONVOY_WARM", "value": "false"}]}],
    }
    return PodTemplate.model_validate({"spec": spec})


def decide(work: Work, own: Revision | None) -> Activation:
    """Return what the Service and the activators need now. `own` is the revision of the activators."""
    observed, live = work.observed, work.observed.front
    serving, activators = replicas(work), work.roles().get(ROLE, [])
    wanted = observed.desired(observed.job.spec.serving_role)
    if not wanted and observed.job.spec.scales_to_zero and (own is not None or activators):
        if live == ACTIVATORS or any(one.settled(work.now) for one in activators):
            return Activation(ACTIVATORS, COUNT, kept=int(live != ACTIVATORS and bool(serving)))
        return Activation(REPLICAS, COUNT, kept=int(bool(serving)))
    if wanted and live == ACTIVATORS and not any(one.settled(work.now) for one in serving):
        return Activation(ACTIVATORS, COUNT, kept=0)
    return Activation(REPLICAS, COUNT if live == ACTIVATORS else 0, kept=0)


def replicas(work: Work) -> list[Group]:
    """Return the replicas that receive requests."""
    found = []
    for one in work.groups.values():
        known = work.revisions.get(one.record.revision)
        if known is not None and not is_own(known) and known.spec.serving_role == one.record.role:
            found.append(one)
    return found


def carry_out(work: Work, found: Activation, own: Revision | None, units: Sequence[Unit]) -> None:
    """Add the changes of the activators and the addresses that they need."""
    # A Service that does not exist yet queues the job when it appears.
    if work.observed.front not in ("", found.front):
        work.waits.append(SWITCH_SECONDS)
    target = own.name if own is not None else next((one.revision for one in units), "")
    limits = Budget(found.desired, 1, 0) if found.desired else Budget(0, 0, 0)
    made = rollout.changes(list(units), Goal(target), limits)
    repair.change(work, ROLE, made if own is not None else replace(made, create=()))
    for command in _commands(work):
        work.commands.append(command)
        work.waits.append(RESEND_SECONDS)


def _commands(work: Work) -> Iterator[Endpoints]:
    """Yield the addresses of the ready replicas for each activator that does not know them yet. Activators
    that drain need them too.
    """
    addresses = _addresses(work)
    for pod in work.observed.own_pods:
        view = work.observed.slots.get(pod.uid)
        if pod.labels.get(LABEL_ROLE) != ROLE or view is None or not view.incarnation:
            continue
        if view.endpoints != addresses and not view.agent_away:
            yield Endpoints(view.node, pod.uid, view.incarnation, addresses)


def _addresses(work: Work) -> tuple[str, ...]:
    found = set()
    for one in replicas(work):
        first, known = one.pods.get(0), work.revisions[one.record.revision]
        if one.ready and first is not None and first.ip:
            found.add(address(first.ip, known.spec.port))
    return tuple(sorted(found)[:MAX_ADDRESSES])


def applied(job: ServingJob, found: Activation) -> Iterator[Apply]:
    """Yield the objects that activators need beside their pods."""
    if found.desired:
        yield children.disruption_budget(job, ROLE, found.desired - 1)
