"""Suspends all jobs at once, then resumes all at once."""

from __future__ import annotations

import asyncio
import time

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig.audit import phases
from e2e.bench.rig.jobs import HUNDRED
from e2e.bench.rig.rig import Rig
from e2e.bench.scale.scenarios.common import ROLLOUT_SECONDS, SETTLE_SECONDS, Rate, bring_up, ours


async def suspend_and_resume(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Measure the suspension and the resumption of a hundred jobs of ten workers each."""
    async with rig.operating(rate.qps):
        up = await bring_up(rig, HUNDRED)
        for suspend, wanted in ((True, "Suspended"), (False, "Running")):
            await rig.wait_quiet()
            rig.log.restart()
            began = time.time()

            def all_reached(wanted: str = wanted) -> bool:
                return (
                    sum(reported[-1][1] == wanted for reported in phases(rig.entries).values())
                    >= HUNDRED.jobs
                )

            await rig.each_job(HUNDRED.names, {"suspend": suspend})
            up = await rig.holds_in_time(all_reached, ROLLOUT_SECONDS) and up
            await asyncio.sleep(SETTLE_SECONDS)
            end = max((reported[-1][0] for reported in phases(rig.entries).values()), default=began)
            words = f"{HUNDRED} {'suspended' if suspend else 'resumed'} at once, {rate.title}"
            figures.add(Metric(f"{words}: all {wanted}", "seconds"), end - began if up else None)
            figures.add(
                Metric(f"{words}: objects written", "per pod"),
                len(ours(rig.entries)) / HUNDRED.pods if up else None,
            )
        await rig.clear()
