"""Scenarios with faults: the operator is killed, or a tenth of the nodes crashes."""

from __future__ import annotations

import asyncio
import time

from convoy_crds.terms import LABEL_JOB
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig.audit import last
from e2e.bench.rig.jobs import HUNDRED, ONE_LARGE, PODS
from e2e.bench.rig.rig import Rig, slots_with_two_pods
from e2e.bench.rig.rollout import running_since
from e2e.bench.scale.scenarios.common import ROLLOUT_SECONDS, SETTLE_SECONDS, Rate, bring_up, created, ours

_TRAIN_SECONDS = 15.0


async def kill_operator(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Kill the operator in the middle of a rollout and start it again after one second, as a kubelet would.
    Measure the rest of the rollout.
    """
    async with rig.operating(rate.qps):
        await rig.wait_quiet()
        rig.log.restart()
        await rig.create(ONE_LARGE)
        await rig.holds_in_time(lambda: created(rig.entries) >= ONE_LARGE.pods * 3 // 10, 60)
        died = time.time()
        rig.operator.kill()
        await asyncio.sleep(1.0)
        half = 0 < created(rig.entries) < ONE_LARGE.pods
        rig.operator.start(rate.qps)
        await rig.holds_in_time(lambda: bool(running_since(rig.entries)), ROLLOUT_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        entries = rig.entries
        again = [e.answered for e in entries if e.is_a("create", "pods") and e.received > died + 1.0]
        ran = max(running_since(entries).values(), default=None)
        # The log may lack the response to a create that was in flight at the kill. So the job's phase, not
        # the number of creates, shows that all pods exist.
        whole = half and ran is not None
        words = f"operator killed in the middle of {ONE_LARGE}, {rate.title}"
        figures.add(
            Metric(f"{words}: pods are created again", "seconds"), min(again) - died if again else None
        )
        figures.add(Metric(f"{words}: last pod created", "seconds"), max(again) - died if whole else None)
        figures.add(Metric(f"{words}: Running", "seconds"), ran - died if ran and half else None)
        figures.add(
            Metric(f"{words}: slots with two pods", "slots", 0), len(await slots_with_two_pods(rig.api))
        )
        replaced = max(0, created(entries) - ONE_LARGE.pods)
        figures.add(Metric(f"{words}: pods replaced", "pods"), replaced)
        await rig.clear()


async def crash_nodes(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Crash every tenth node: its kubelet, agent and pods stop at once. Measure the recovery of the jobs."""
    async with rig.operating(rate.qps):
        up = await bring_up(rig, HUNDRED)
        rig.swarm.training = True
        await asyncio.sleep(_TRAIN_SECONDS)
        crashed = set(rig.plane.crashing)
        pods = (await rig.api.get(PODS, labelSelector=LABEL_JOB))["items"]
        node_of_pod = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}
        affected = {
            pod["metadata"]["labels"][LABEL_JOB] for pod in pods if pod["spec"].get("nodeName") in crashed
        }
        await rig.wait_quiet()
        rig.log.restart()
        began = time.time()
        await rig.crash()
        try:
            await rig.holds_in_time(
                lambda: affected <= running_since(rig.entries, began).keys(), ROLLOUT_SECONDS
            )
            await asyncio.sleep(SETTLE_SECONDS)
            entries = rig.entries
            recovered = sorted(
                at - began for job, at in running_since(entries, began).items() if job in affected
            )
            deleted = {entry.name for entry in entries if entry.is_a("delete", "pods")} & node_of_pod.keys()
            replaced = last(entries, lambda entry: entry.is_a("create", "pods"))
            words = f"{len(crashed)} of {len(rig.plane.nodes)} nodes crash under {HUNDRED}, {rate.title}"
            for what, value, unit in (
                ("jobs hit", len(affected) if up else None, "jobs"),
                ("last pod replaced", replaced - began if replaced else None, "seconds"),
                ("half of the jobs hit are Running again", _at(recovered, len(affected) // 2), "seconds"),
                ("all jobs hit are Running again", _at(recovered, len(affected) - 1), "seconds"),
                ("healthy pods deleted", sum(node_of_pod[name] not in crashed for name in deleted), "pods"),
                ("objects written", len(ours(entries)) / max(1, len(affected)), "per job hit"),
            ):
                figures.add(Metric(f"{words}: {what}", unit), value)
        finally:
            rig.swarm.training = False
            await rig.reboot()
        await rig.clear()


def _at(times: list[float], index: int) -> float | None:
    return times[index] if 0 <= index < len(times) else None
