"""The public face of Convoy: `join()` for programs that train, `Client` for those who start and watch them.

```python
with convoy.join() as job:
    start = job.restore(model=model, optimizer=optimizer)
    for step in job.steps(total):
        ...
        job.report(step, loss=loss, samples=len(batch))
        job.checkpoint(step)
```

`Client` is loaded when it is first named: it needs the extra `client`, which a program that trains does not.
"""

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime import DataError, Interrupted, Job, ParamsError, PeerLost, join

if TYPE_CHECKING:
    from convoy.client import Client as Client

# The agent mounts this face beside an image that may hold the rest of the package.
__path__ = extend_path(__path__, __name__)

# Not `Client`: `import *` in a program that trains would ask for it.
__all__ = ["DataError", "Interrupted", "Job", "ParamsError", "PeerLost", "join"]


def __getattr__(name: str) -> Any:
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from convoy.client import Client  # noqa: PLC0415 - it needs what no training image has
    except ImportError as error:
        raise ImportError(
            f"convoy.Client needs {error.name}, which comes with the extra `client` of convoy-operator"
        ) from error
    return Client
