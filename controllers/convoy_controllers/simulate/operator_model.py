"""The operator of a simulated cluster: it drives the real plan function and carries its plans out.

It follows convoy_operator.reconcile, with its order of effects, its conflicts and back-offs; and it may crash
between any two of them. The next leader begins with the API server's word and nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.plan import Plan
from convoy_controllers.progress_throttle import WRITES_PER_SECOND, ProgressThrottle
from convoy_controllers.queue_timings import BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS
from convoy_controllers.simulate import stores
from convoy_controllers.simulate.api import Api, ApiError, Refused, Stored
from convoy_controllers.simulate.happenings import Planned, Tell
from convoy_controllers.simulate.hub import Hub
from convoy_controllers.simulate.kernel import Kernel, Timer
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.performing import Effects, Hands
from convoy_controllers.simulate.sight import Sight
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan as planned
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Phase

LEAST_REQUEUE = 0.05


class Crashed(Exception):
    """The operator's process is gone."""


@dataclass(slots=True)
class Desk:
    """What the operator keeps of one job."""

    timer: Timer | None = None
    busy: bool = False
    again: bool = False
    """It became due while it was worked on."""
    failures: int = 0
    not_before: float = 0.0
    refusals: int = 0
    """Rounds in a row in which a pod was refused."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    refused_until: float = 0.0
    generation: int = 0


class OperatorModel:
    """At most one leader at a time; `crash` ends it, and another follows."""

    def __init__(
        self,
        kernel: Kernel,
        latencies: Latencies,
        api: Api,
        hub: Hub,
        engines: Mapping[str, Engine],
        tell: Tell,
    ) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._hub = hub
        self._engines = engines
        self._tell = tell
        self.sight = Sight(kernel, latencies, api)
        self.sight.wake = self._news
        self._desks: dict[str, Desk] = {}
        self._throttle = self._new_throttle()
        self._countdown = 0
        self._life = 0
        self.leading = False
        self.plans = 0
        hub.monitor.wake = self._node_news

    def _new_throttle(self) -> ProgressThrottle[str]:
        return ProgressThrottle(self._latencies.progress_write, WRITES_PER_SECOND)

    # Life and death

    def lead(self) -> None:
        """A replica leads from now on."""
        if self.leading or not self._api.up:
            if not self.leading:
                self._kernel.after(1.0, self.lead)
            return
        self.leading = True
        self._countdown = 0
        self._desks.clear()
        self._throttle = self._new_throttle()
        self.sight.open()
        self._hub.begin()
        for name in self.sight.jobs:
            self.add(name, 0.0)

    def crash(self, effects: int = 0) -> None:
        """The leader dies: at once, or after so many further effects of its plans."""
        if effects > 0:
            self._countdown = effects
        elif self.leading:
            self._die()

    def _die(self) -> None:
        self.leading = False
        self._life += 1
        self.sight.close()
        self._hub.end()
        for desk in self._desks.values():
            if desk.timer is not None:
                desk.timer.cancel()
        self._desks.clear()
        self._kernel.after(self._kernel.about(self._latencies.failover), self.lead)

    def api_changed(self) -> None:
        """The API server answers again: its watches are opened anew."""
        if self.leading and self._api.up:
            self.sight.open()
            for name in self.sight.jobs:
                self.add(name, 0.0)

    # The queue

    def add(self, name: str, seconds: float) -> None:
        """Wants a job looked at within so many seconds."""
        if not self.leading or name not in self.sight.jobs:
            return
        desk = self._desks.setdefault(name, Desk())
        due = self._kernel.now + seconds
        if seconds:
            due = max(due, desk.not_before)
        if desk.busy:
            desk.again = True
            return
        if desk.timer is not None:
            if desk.timer.at <= due:
                return
            desk.timer.cancel()
        desk.timer = self._kernel.at(due, lambda: self._begin(name))

    def _news(self, job: str, urgent: bool) -> None:
        self.add(job, 0.0 if urgent else self._latencies.debounce)

    def _node_news(self, node: str, seconds: float) -> None:
        for job in self.sight.jobs_on(node):
            self.add(job, seconds)

    def _begin(self, name: str) -> None:
        desk = self._desks.get(name)
        if desk is None or not self.leading:
            return
        desk.timer = None
        desk.busy = True
        self._kernel.play(self._handle(name, desk))

    def _handle(self, name: str, desk: Desk) -> Effects:
        """One reconcile; whatever goes wrong is tried again later."""
        life = self._life
        try:
            wait = yield from self._reconcile(name, desk, life)
        except Crashed:
            return
        except ApiError:
            desk.failures += 1
            wait = self._backoff(desk.failures)
            desk.not_before = self._kernel.now + wait
        else:
            desk.failures, desk.not_before = 0, 0.0
        if life != self._life:
            return
        desk.busy = False
        if desk.again:
            desk.again = False
            self.add(name, self._latencies.debounce)
        if wait is not None:
            self.add(name, max(wait, LEAST_REQUEUE))

    def _hands(self, life: int) -> Hands:
        def alive() -> None:
            if life != self._life:
                raise Crashed

        def begin() -> None:
            alive()
            if self._countdown:
                self._countdown -= 1
                if not self._countdown:
                    self._die()
                    raise Crashed

        return Hands(
            kernel=self._kernel,
            latencies=self._latencies,
            api=self._api,
            send=self._hub.send,
            sight=self.sight,
            tell=self._tell,
            before_effect=begin,
            after_request=alive,
        )

    # One reconcile

    def observed(self, job: TrainingJob, refused: Mapping[str, Refusal]) -> Observed:
        """What plans are shown of a job."""
        pods = self.sight.pods(job.metadata.name)
        own = tuple(pod for pod in pods if pod.owner_uid == job.metadata.uid)
        named = job.spec.engine.name if job.spec.engine else ""
        return Observed(
            job=job,
            engine=self._engines.get(named),
            known_engines=tuple(sorted(self._engines)),
            store=stores.named(job),
            pods=pods,
            slots=self._hub.slots(own),
            nodes=self._hub.nodes(pods),
            silent_seconds=self._latencies.silent,
            agent_nodes=sum(node.agent_ready for node in self._api.nodes.values()),
            create_errors=refused,
        )

    def _reconcile(self, name: str, desk: Desk, life: int) -> Generator[float, None, float | None]:
        """Seconds until time alone makes another reconcile worth while."""
        stored = self.sight.jobs.get(name)
        if stored is None:
            self._throttle.drop(name)
            return None
        nodes = {pod.node for pod in self.sight.pods(name) if pod.node}
        if unsettled := self._hub.monitor.unsettled(nodes):
            return unsettled
        hands, decided = self._hands(life), self._kernel.now
        made = self._plan(stored, desk)
        waits = [made.requeue_after]
        if made.status_first:
            yield from self._store(hands, stored, made, decided)
        for gone in made.deletions:
            yield from hands.delete(name, gone)
        if made.creations and (yield from self._create(hands, stored, made, desk)):
            stored, decided = self.sight.jobs.get(name, stored), self._kernel.now
            made = replace(self._plan(stored, desk), status_first=False)
            waits.append(made.requeue_after)
        if desk.refused_until > self._kernel.now:
            waits.append(desk.refused_until - self._kernel.now)
        if not made.status_first:
            waits.append(self._too_early(stored, made))
            if waits[-1] is None:
                yield from self._store(hands, stored, made, decided)
        hands.command(stored.job, made)
        if made.delete_parent:
            yield from hands.delete_job(name)
            return None
        if stored.job.status.phase is Phase.RUNNING:
            # Agents report steps all the time: their job is woken at its turn to store them.
            turn = self._throttle.turn(name, len(self.sight.jobs), self._kernel.now)
            waits.append(turn or self._latencies.progress_write)
        return min((wait for wait in waits if wait is not None), default=None)

    def _plan(self, stored: Stored, desk: Desk) -> Plan:
        standing = desk.generation == stored.job.metadata.generation and self._kernel.now < desk.refused_until
        observed = self.observed(stored.job, desk.refused if standing else {})
        made = planned(observed, self._kernel.time)
        self.plans += 1
        self._tell(Planned(observed, made))
        return made

    def _create(self, hands: Hands, stored: Stored, made: Plan, desk: Desk) -> Generator[float, None, bool]:
        """Creates the plan's pods up to the first that is refused; whether one was."""
        refused: dict[str, Refusal] = {}
        for body in made.manifests:
            try:
                yield from hands.create(stored.job.metadata.uid, body)
            except Refused as error:
                refused[body["metadata"]["name"]] = Refusal(str(error))
                break
        desk.refusals = desk.refusals + 1 if refused else 0
        desk.generation, desk.refused = stored.job.metadata.generation, refused
        desk.refused_until = self._kernel.now + self._backoff(desk.refusals) if refused else 0.0
        return bool(refused)

    def _backoff(self, tries: int) -> float:
        """Seconds until the next try after so many that failed in a row."""
        longest = min(BACKOFF_MIN_SECONDS * 2.0 ** (tries - 1), BACKOFF_MAX_SECONDS)
        return longest * self._kernel.rng.uniform(0.5, 1.0)

    def _store(self, hands: Hands, stored: Stored, made: Plan, decided: float) -> Effects:
        if made.status is not None and merge_patch(stored.job.status.to_dict(), made.status):
            yield from hands.store(stored, made.status, decided)
            self._throttle.record_write(stored.job.metadata.name, self._kernel.now)

    def _too_early(self, stored: Stored, made: Plan) -> float | None:
        """Return the seconds until a status that carries only progress may be written; None for now."""
        if made.status is None:
            return None
        before = stored.job.status.to_dict()
        patch, jobs = merge_patch(before, made.status), len(self.sight.jobs)
        if not patch:
            return None
        return self._throttle.wait(stored.job.metadata.name, before, patch, jobs, self._kernel.now) or None
