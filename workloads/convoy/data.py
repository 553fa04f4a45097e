"""Loaders for training on samples of different sizes, for programs with PyTorch.

```python
from convoy.data import OnlineBatches, OnlineOptions

batches = OnlineBatches(dataset, OnlineOptions(tokens=4096))
batches.attach(model)
job.restore(model=model, optimizer=optimizer, extra={"batches": batches})
for batch in batches:
    ...
```

`OnlineBatches` forms batches under a token budget, from the lengths that samples have after preprocessing.
This module needs torch and numpy. `import convoy` alone does not.
"""

from convoy_workloads.data.intake import Quarantined, SampleError, SampleFunctions
from convoy_workloads.data.online_batches import BatchInfo, OnlineBatches
from convoy_workloads.data.online_options import OnlineOptions
from convoy_workloads.data.padding import pad_batch
from convoy_workloads.data.sample_stream import LoaderError

__all__ = [
    "BatchInfo",
    "LoaderError",
    "OnlineBatches",
    "OnlineOptions",
    "Quarantined",
    "SampleError",
    "SampleFunctions",
    "pad_batch",
]
