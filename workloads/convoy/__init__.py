"""The public face of Convoy: `join()` for programs that train.

```python
with convoy.join() as job:
    start = job.restore(model=model, optimizer=optimizer)
    for step in job.steps(total):
        ...
        job.report(step, loss=loss, samples=len(batch))
        job.checkpoint(step)
```
"""

from pkgutil import extend_path

from convoy_workloads.runtime import DataError, Interrupted, Job, ParamsError, PeerLost, join

# The agent mounts this face beside an image that may hold the rest of the package.
__path__ = extend_path(__path__, __name__)

__all__ = ["DataError", "Interrupted", "Job", "ParamsError", "PeerLost", "join"]
