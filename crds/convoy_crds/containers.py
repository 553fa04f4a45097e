"""The container of a worker pod that runs the ranks.

A template's first container is that of the ranks. Of a pod the position says nothing: admission may have put
others before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy_crds.terms import ANNOTATION_CONTAINER

UNNAMED = "worker"
"""Name of the ranks' container where the template has none."""


def rank_container(annotations: Mapping[str, str] | None, names: Sequence[str]) -> str:
    """Name of the ranks' container in a pod with these annotations and, in their order, containers.

    A pod that was made before pods had the annotation has `worker`, or has its ranks in the first.
    """
    named = (annotations or {}).get(ANNOTATION_CONTAINER, "")
    if named in names:
        return named
    return UNNAMED if UNNAMED in names or not names else names[0]
