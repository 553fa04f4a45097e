"""T01: the image is pinned by its digest."""

from __future__ import annotations

from collections.abc import Iterator

from convoy_controllers.advice.json_values import text
from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.subject import Container, Subject
from convoy_crds.advice import Severity

MOVING = frozenset({"", "latest", "main", "master", "nightly", "edge", "stable", "dev"})
"""Tags that their owners move to other images all the time. The first one means no tag."""
LOCAL = "convoy/"
"""Start of the names of images that `make images` loads into the nodes. No registry keeps them, so they have
no digest to name.
"""


def tag(image: str) -> str | None:
    """Return the tag of an image; empty without one, None for an image with a digest."""
    if "@" in image:
        return None
    return image.rpartition("/")[2].partition(":")[2]


def unpinned(container: Container) -> str | None:
    """Return the tag by which a container names its image; None without an image, or with a digest."""
    image = text(container.body.get("image"))
    return tag(image) if image and not image.startswith(LOCAL) else None


def _check(subject: Subject) -> Iterator[Found]:
    for role in subject.roles:
        for container in (*role.containers(), *role.containers(init=True)):
            found = unpinned(container)
            if found is None:
                continue
            image = container.body["image"]
            if found in MOVING:
                why = f"has the tag {found!r}" if found else "has no tag"
                message = f"image {image} {why}: a restarted pod may run another program than its peers"
                severity = Severity.WARNING
            else:
                message = f"image {image} is named by a tag, which its owner can move to another program"
                severity = Severity.INFO
            remedy = f"name it by digest: {image.partition(':')[0] if not found else image}@sha256:..."
            yield Found(f"{container.path}.image", message, remedy, severity)


T01 = Rule("T01", "Image pinned by digest", Severity.WARNING, _check)
