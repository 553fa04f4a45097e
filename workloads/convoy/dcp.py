"""Checkpoints in the memory of the job's nodes, for programs that use torch.distributed.checkpoint.

```python
import torch.distributed.checkpoint as dcp
from convoy.dcp import ConvoyReader, ConvoyWriter

with convoy.join() as job:
    with ConvoyReader(job) as reader:
        if reader.generation is not None:
            dcp.load(state, storage_reader=reader)
    for step in job.steps(total):
        ...
        job.report(step, loss=loss)
        if job.due(step):
            dcp.save(state, storage_writer=ConvoyWriter(job, step))
```

This module needs torch. `import convoy` alone does not.
"""

from convoy_workloads.runtime.adapters.dcp import ConvoyReader, ConvoyWriter, NotSaved
from convoy_workloads.runtime.errors import StepAbandoned

__all__ = ["ConvoyReader", "ConvoyWriter", "NotSaved", "StepAbandoned"]
