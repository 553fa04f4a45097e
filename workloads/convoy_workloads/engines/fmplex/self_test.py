"""The self-test of the loaded tasks: a row has the same features in every batch, down to the last bit. The
test also measures the costs of batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from convoy_workloads.engines.fmplex.deployment import Deployment
from convoy_workloads.engines.fmplex.pods import Batch, BatchKey, Computed, Pod
from convoy_workloads.engines.fmplex.task_queue import Item
from convoy_workloads.engines.fmplex.tasks import VirtualModel
from convoy_workloads.serving.protocol import SelfTestFailed


def run(deployment: Deployment, batch_max: int) -> None:
    """Test each backbone on each pod. Raises SelfTestFailed."""
    tested: dict[tuple[int, str], list[VirtualModel]] = {}
    for model in deployment.models():
        tested.setdefault((model.assignment.pod, model.digest), []).append(model)
    for (number, _), models in tested.items():
        pod = deployment.pods[number]
        for length in models[0].facts.form.lengths:
            _test(deployment, pod, models, length, batch_max)


def _test(
    deployment: Deployment, pod: Pod, models: Sequence[VirtualModel], length: int, batch_max: int
) -> None:
    """Compare the features of rows in batches of several sizes with those of each row alone."""
    facts, name = models[0].facts, models[0].assignment.backbone.name
    rows = facts.form.samples(batch_max, length)
    chosen = [models[number % len(models)] for number in range(batch_max)]
    # The first batch of a length is slow, and so it does not count.
    whole = _compute(deployment, pod, chosen, rows, length).features_BC
    if not torch.isfinite(whole).all():
        raise SelfTestFailed(f"the features of backbone {name!r} are not finite")
    for size in sorted({1, 2, 3, max(1, batch_max // 2), batch_max}):
        part = slice(batch_max - size, batch_max)
        computed = _compute(deployment, pod, chosen[part], rows[part], length)
        pod.costs.observe(BatchKey(models[0].digest, length), size, computed.seconds)
        if not torch.equal(computed.features_BC, whole[part]):
            raise SelfTestFailed(
                f"a row of backbone {name!r} has other bits in a batch of {size} rows than in one of "
                f"{batch_max}: this machine or its PyTorch computes inexactly"
            )


def _compute(
    deployment: Deployment, pod: Pod, models: Sequence[VirtualModel], rows: list[object], length: int
) -> Computed:
    key = BatchKey(models[0].digest, length)
    items = [Item(model.task.name, key, 0, number, 0.0) for number, model in enumerate(models)]
    slots = [model.assignment.slot for model in models]
    batch = Batch(items, models[0].assignment.backbone, models[0].facts.form, rows, slots)
    return pod.call(lambda: pod.compute(batch), deployment.renew)
