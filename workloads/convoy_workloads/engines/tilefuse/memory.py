"""The resident memory of a packed model: `python -m convoy_workloads.engines.tilefuse.memory PARAMS`.

The model is mapped and used in a process that has used a small model before, so that libraries and work
buffers do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import torch

from convoy_workloads.engines.lm.transformer import Transformer
from convoy_workloads.engines.tilefuse import loading
from convoy_workloads.engines.tilefuse.packed_linear import Counters
from convoy_workloads.engines.tilefuse.params import Params
from convoy_workloads.engines.tilefuse.sequences import logits
from convoy_workloads.runtime.process_status import status_bytes

SECONDS = 600.0
_SMALL = {"layers": 1}


def growth(params: Mapping[str, Any]) -> float:
    """Return the growth of resident memory by the model and its passes, over the size of its packed form.

    The packed form is made first if it is not in the cache. Raises subprocess.CalledProcessError if a
    measuring process fails.
    """
    command = [sys.executable, "-m", "convoy_workloads.engines.tilefuse.memory", json.dumps(params)]
    # The first process may have to pack the model.
    outputs = [subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS, check=True) for _ in range(2)]
    found = json.loads(outputs[-1].stdout.splitlines()[-1])
    return float(found["grown"] / found["packed"] - 1)


def measure(params: Params) -> dict[str, int]:
    """Return the growth of this process's memory, and the bytes of the packed model."""
    folder, _ = loading.packed_form(None, params, _nothing)
    with torch.inference_mode():
        _use(params.model_copy(update=_SMALL))
        before = status_bytes("VmRSS")
        model = _use(params)
        grown = status_bytes("VmRSS") - before
    del model
    return {"grown": grown, "packed": sum(one.stat().st_size for one in folder.iterdir())}


def _use(params: Params) -> Transformer:
    """Load a model, and compute products of matrices, and of a matrix with a vector."""
    model = loading.load(None, params, Counters(), _nothing).model
    for rows in (33, 1):
        logits(model, torch.zeros((1, rows), dtype=torch.long))
    return model


def _nothing() -> None:
    pass


def main() -> None:
    """Measure the model of the parameters in the only argument."""
    torch.set_num_threads(1)
    print(json.dumps(measure(Params.model_validate_json(sys.argv[1]))))


if __name__ == "__main__":
    main()
