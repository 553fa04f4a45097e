"""The check that all ranks train the same model: equal rows, targets and settings.

Ranks hold columns, and have everything else in common. With other settings their messages would have other
sizes, which gloo answers by ending the process. With other targets they would train a meaningless model.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

from torch import Tensor

from convoy_workloads.comm.collectives import Collectives


def disagreement(
    faulty: bool, targets: Tensor, settings: Mapping[str, object], collectives: Collectives
) -> str:
    """Return why some rank cannot train; an empty text if all can. `faulty`: this rank cannot.

    All ranks must call this, so that no rank waits for one that has stopped. It does not count as traffic.
    """
    if collectives.world == 1:
        return ""
    own = {name: repr(value) for name, value in settings.items()}
    own["rows"] = str(len(targets))
    own["targets"] = str(zlib.crc32(targets.detach().double().cpu().contiguous().numpy().tobytes()))
    with collectives.uncounted():
        found = [json.loads(one) for one in collectives.gather_bytes([json.dumps([faulty, own]).encode()])]
    if bad := [rank for rank, (fault, _) in enumerate(found) if fault]:
        return f"rank {bad[0]} cannot train on its data; the error of that rank names the reason"
    first: Mapping[str, str] = found[0][1]
    for rank, (_, other) in enumerate(found):
        for name, value in first.items():
            if other[name] != value:
                return f"{name}: rank {rank} has another value than rank 0; ranks may differ in columns only"
    return ""
