"""The public API of Convoy: `join()` for training programs, `ReplicaState` for programs that serve, and
`Client` to create and watch jobs.

```python
with convoy.join() as job:
    start = job.restore(model=model, optimizer=optimizer)
    for step in job.steps(total):
        ...
        job.report(step, loss=loss, samples=len(batch))
        job.checkpoint(step)
    job.set_result({"loss": loss})
```

`Client` is imported on first use, because it needs the extra `client`. Training programs work without that
extra.
"""

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime import (
    DataError,
    Interrupted,
    Job,
    Notice,
    ParamsError,
    PeerLost,
    ReplicaState,
    ResultError,
    SavedState,
    join,
    notice,
)

if TYPE_CHECKING:
    from convoy.client import Client as Client

# The agent mounts a part of this package into the container. The container's image may have the rest, so the
# path must cover both.
__path__ = extend_path(__path__, __name__)

# `Client` is not listed, because `from convoy import *` in a training program must not import it.
__all__ = [
    "DataError",
    "Interrupted",
    "Job",
    "Notice",
    "ParamsError",
    "PeerLost",
    "ReplicaState",
    "ResultError",
    "SavedState",
    "join",
    "notice",
]


def __getattr__(name: str) -> Any:
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from convoy.client import Client  # noqa: PLC0415 - training images lack its packages
    except ImportError as error:
        raise ImportError(
            f"convoy.Client needs {error.name}: install convoy-operator with the extra `client`"
        ) from error
    return Client
