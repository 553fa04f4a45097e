"""An endless job that runs the unmodified torchrun script of `examples/torchrun.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from e2e.cluster import files
from e2e.drive.job_specs import on_separate_nodes
from e2e.drive.jobs import Jobs

EXAMPLES = files.CHECKOUT / "examples"


@contextmanager
def own_script(jobs: Jobs, name: str) -> Iterator[dict[str, Any]]:
    """Yield the spec of an endless job from examples/torchrun.yaml. Its script is unmodified, in a
    ConfigMap.
    """
    body = {"metadata": {"name": name}, "data": {"ddp.py": (EXAMPLES / "ddp.py").read_text()}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / "torchrun.yaml").read_text())["spec"]
    pod = spec["roles"][0]["template"]["spec"]
    pod["containers"][0]["env"].append({"name": "STEPS", "value": "1000000"})
    pod["volumes"][0]["configMap"]["name"] = name
    pod.update(on_separate_nodes(name)["spec"])
    try:
        yield {"engine": None, **spec}
    finally:
        jobs.core.delete_namespaced_config_map(name, jobs.namespace)
