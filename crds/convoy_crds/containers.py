"""Finds the container of a worker pod that runs the ranks.

In a pod template the first container runs the ranks. In a pod the position proves nothing, because
admission webhooks may insert containers before it. So the annotation convoy.dev/container names the
container.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy_crds.terms import ANNOTATION_CONTAINER

UNNAMED = "worker"
"""Name of the ranks' container if the template does not name it."""


def rank_container(annotations: Mapping[str, str] | None, names: Sequence[str]) -> str:
    """Return the name of the ranks' container. `annotations` are those of the pod, `names` the names of its
    containers in order.

    A pod without the annotation was created by an older operator. Its ranks run in the container `worker`
    or, if there is no such container, in the first container.
    """
    named = (annotations or {}).get(ANNOTATION_CONTAINER, "")
    if named in names:
        return named
    return UNNAMED if UNNAMED in names or not names else names[0]
