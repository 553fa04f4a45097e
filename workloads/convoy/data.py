"""Datasets and loaders for programs with PyTorch.

```python
from convoy.data import OnlineBatches, OnlineOptions

batches = OnlineBatches(dataset, OnlineOptions(tokens=4096))
batches.attach(model)
job.restore(model=model, optimizer=optimizer, extra={"batches": batches})
for batch in batches:
    ...
```

`OnlineBatches` forms batches under a token budget, from the lengths that samples have after preprocessing.
`AdaptiveBuckets` sizes the batches of samples of equal length (buckets) by the measured time of a step.
`PackedFiles` is a dataset of many small files in tar archives, which `convoy data pack` makes.
This module needs torch and numpy. `import convoy` alone does not.
"""

from convoy_workloads.data.adaptive_buckets import AdaptiveBuckets, BucketInfo
from convoy_workloads.data.bucket_options import BucketOptions
from convoy_workloads.data.bucket_table import BucketError, BucketTable
from convoy_workloads.data.intake import Quarantined, SampleError, SampleFunctions
from convoy_workloads.data.online_batches import BatchInfo, OnlineBatches
from convoy_workloads.data.online_options import OnlineOptions
from convoy_workloads.data.packed_files.errors import PackedFilesError
from convoy_workloads.data.packed_files.packed_files import PackedFiles
from convoy_workloads.data.padding import pad_batch
from convoy_workloads.data.sample_stream import LoaderError
from convoy_workloads.packing.step_cost import Timing

__all__ = [
    "AdaptiveBuckets",
    "BatchInfo",
    "BucketError",
    "BucketInfo",
    "BucketOptions",
    "BucketTable",
    "LoaderError",
    "OnlineBatches",
    "OnlineOptions",
    "PackedFiles",
    "PackedFilesError",
    "Quarantined",
    "SampleError",
    "SampleFunctions",
    "Timing",
    "pad_batch",
]
