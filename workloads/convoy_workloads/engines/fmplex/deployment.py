"""The tasks of a replica and the pods that host them. Tasks are attached and detached between two batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from convoy_workloads.engines.fmplex import backbones, heads
from convoy_workloads.engines.fmplex.backbones import BackboneFacts
from convoy_workloads.engines.fmplex.host import Host, LocalHost, tensors_of
from convoy_workloads.engines.fmplex.params import Params, Task
from convoy_workloads.engines.fmplex.placement import Unplaceable
from convoy_workloads.engines.fmplex.pods import Pod
from convoy_workloads.engines.fmplex.remote import RemoteHost
from convoy_workloads.engines.fmplex.tasks import Assigner, Assignment, VirtualModel, card_of
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.protocol import ModelCard, ModelError


class Deployment:
    """The pods and tasks of a replica, as rank 0 sees them."""

    def __init__(
        self, params: Params, path: Path | None, device: torch.device, group: Group, renew: Callable[[], None]
    ) -> None:
        """`renew` is called during loads."""
        self._params = params
        self._path = path
        self._device = device
        self.renew = renew
        self._facts: dict[str, BackboneFacts] = {}
        self._models: dict[str, VirtualModel] = {}
        hosts: list[Host] = [LocalHost(params, path, device, self.show_alive)]
        hosts += [RemoteHost(rank, params.backbones, self._facts) for rank in range(1, group.world)]
        self.pods = [
            Pod(host, params.order, params.batch.max, number > 0) for number, host in enumerate(hosts)
        ]
        self._assigner = Assigner(params, self._facts, group.world)
        self.cards: Mapping[str, ModelCard] = MappingProxyType({})
        """Cards of the tasks that accept requests. Each change replaces the mapping, so any thread may read
        it.
        """

    def load(self, tasks: list[Task]) -> None:
        """Load tasks in place of the present ones, which have no requests. Raises ModelError if a task
        cannot be loaded.
        """
        for pod in self.pods:
            pod.discard()
        for model in self.models():
            self._remove(model)
        self._facts.clear()
        self._attach(tasks)

    def attach(self, task: Task) -> None:
        """Add a task. Raises ValueError if its name is in use or its backbone is unknown, and ModelError if
        it cannot be loaded.
        """
        if task.name in self._models:
            raise ValueError(f"there is a task {task.name!r} already: detach it first")
        self._attach([task])

    def detach(self, name: str) -> Future[None]:
        """Let a task accept no further request. Return a future, which is done when its last row has ended
        and its memory is free. Raises KeyError if there is no such task.
        """
        model = self._models[name]
        done: Future[None] = Future()
        model.detached.append(done)
        self._publish()
        self.free(model)
        return done

    def free(self, model: VirtualModel) -> None:
        """Free the memory of a task if it is being detached and none of its rows is left."""
        if not model.detached or model.pending:
            return
        self._remove(model)
        for done in model.detached:
            # Nobody waits any more if the admin route was cancelled.
            if done.set_running_or_notify_cancel():
                done.set_result(None)

    def find(self, name: str) -> VirtualModel | None:
        """Return a task that accepts requests; None if there is none of that name."""
        model = self._models.get(name)
        return model if model is not None and not model.detached else None

    def models(self) -> list[VirtualModel]:
        """Return all tasks. Any thread may call this."""
        return list(self._models.values())

    def model(self, name: str) -> VirtualModel:
        """Return a task."""
        return self._models[name]

    def update(self, name: str, changes: Mapping[str, Any]) -> None:
        """Change parameters of a task. Raises KeyError if there is no such task."""
        model = self._models[name]
        one = replace(model.assignment, task=model.task.model_copy(update=dict(changes)))
        self.pods[one.pod].queue.set_weight(name, one.task.weight)
        model.assignment, model.card = one, card_of(one, model.facts, model.head)
        self._publish()

    def close(self) -> None:
        """Let the other pods end."""
        for pod in self.pods:
            pod.close()

    def _attach(self, tasks: list[Task]) -> None:
        assigned: list[Assignment] = []
        loaded: list[Assignment] = []
        try:
            for task in tasks:
                self._learn(task)
            assigned = self._assigner.assign(tasks)
            for one in assigned:
                pod = self.pods[one.pod]
                pod.call(_attaching(pod.host, one), self.renew)
                loaded.append(one)
                self._add(one)
        except Unplaceable as error:
            raise ModelError(str(error)) from error
        except ModelError:
            for one in assigned:
                model = self._models.get(one.task.name)
                if model is not None:
                    self._remove(model)
                    continue
                self._assigner.release(one)
                if one in loaded:
                    pod = self.pods[one.pod]
                    pod.call(_detaching(pod.host, one), self.renew)
            raise
        finally:
            self._publish()

    def _remove(self, model: VirtualModel) -> None:
        one = model.assignment
        pod = self.pods[one.pod]
        pod.call(_detaching(pod.host, one), self.renew)
        pod.queue.detach(one.task.name)
        self._assigner.release(one)
        del self._models[one.task.name]

    def _learn(self, task: Task) -> None:
        """Learn the facts about a task's backbone."""
        backbone = self._params.backbone_of(task)
        if backbone.digest not in self._facts:
            self._facts[backbone.digest] = backbones.facts(backbone, self._path, self.show_alive)

    def _add(self, one: Assignment) -> None:
        facts = self._facts[one.backbone.digest]
        head = heads.make(one.task, facts.width, tensors_of(one.task, self._path), self._device)
        self.pods[one.pod].queue.attach(one.task.name, one.task.weight)
        self._models[one.task.name] = VirtualModel(one, facts, head, card_of(one, facts, head))

    def _publish(self) -> None:
        self.cards = MappingProxyType(
            {name: one.card for name, one in self._models.items() if not one.detached}
        )

    def show_alive(self) -> None:
        """Show the launcher and the other pods that this rank is alive."""
        self.renew()
        for pod in self.pods[1:]:
            pod.idle()


def _attaching(host: Host, one: Assignment) -> Callable[[], None]:
    return lambda: host.attach(one.task, one.backbone, one.slot)


def _detaching(host: Host, one: Assignment) -> Callable[[], None]:
    return lambda: host.detach(one.backbone, one.slot)
