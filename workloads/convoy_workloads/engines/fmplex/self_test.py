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
from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.protocol import SelfTestFailed


def run(deployment: Deployment, batch_max: int) -> None:
    """Test each backbone on each pod. Raises SelfTestFailed for a wrong result."""
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
    """Test batches of one length. If their size changes bits, pad all batches of the backbone and test
    again.
    """
    name = models[0].assignment.backbone.name
    size = _differing_size(deployment, pod, models, length, batch_max)
    if size and models[0].digest not in pod.padded:
        log_line(f"backbone {name!r}: the size of a batch changes bits here, so all get {batch_max} rows")
        pod.padded.add(models[0].digest)
        size = _differing_size(deployment, pod, models, length, batch_max)
    if size:
        raise SelfTestFailed(
            f"a row of backbone {name!r} has other bits in a batch of {size} rows than in one of "
            f"{batch_max}: this machine is faulty"
        )


def _differing_size(
    deployment: Deployment, pod: Pod, models: Sequence[VirtualModel], length: int, batch_max: int
) -> int:
    """Return a size of batches in which rows have other bits than in a whole batch; 0 if there is none."""
    rows = models[0].facts.form.samples(batch_max, length)
    chosen = [models[number % len(models)] for number in range(batch_max)]
    # The first batch of a length is slow, and so it does not count.
    whole = _compute(deployment, pod, chosen, rows, length).features_BC
    if not torch.isfinite(whole).all():
        raise SelfTestFailed(
            f"the features of backbone {models[0].assignment.backbone.name!r} are not finite"
        )
    for size in sorted({1, 2, 3, max(1, batch_max // 2), batch_max}):
        part = slice(max(0, batch_max - size), batch_max)
        computed = _compute(deployment, pod, chosen[part], rows[part], length)
        pod.costs.observe(BatchKey(models[0].digest, length), len(rows[part]), computed.seconds)
        if not torch.equal(computed.features_BC, whole[part]):
            return size
    return 0


def _compute(
    deployment: Deployment, pod: Pod, models: Sequence[VirtualModel], rows: list[object], length: int
) -> Computed:
    key = BatchKey(models[0].digest, length)
    items = [Item(model.task.name, key, 0, number, 0.0) for number, model in enumerate(models)]
    slots = [model.assignment.slot for model in models]
    batch = Batch(items, models[0].assignment.backbone, models[0].facts.form, rows, slots)
    computed = pod.call(lambda: pod.compute(batch), deployment.renew)
    deployment.show_alive()
    return computed
