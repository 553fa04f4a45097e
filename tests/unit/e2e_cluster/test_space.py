"""Tests of the check for free disk space, and of what it deletes."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from e2e.cluster import space, templates
from e2e.cluster.errors import ClusterError
from e2e.cluster.oci import Image, Store, layer
from e2e.cluster.space import MARGIN, Disk, Step
from e2e.cluster.state import State, StateFile, clusters_root

GB = 10**9


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "convoy").mkdir()
    return tmp_path / "convoy"


def image_of(store: Store, name: str, content: bytes) -> Image:
    return store.add(f"convoy/{name}:1", {"os": "linux", "author": name}, [layer({"f": (content, 0o644)})])


@pytest.fixture
def store(cache: Path, tmp_path: Path) -> Store:
    made = Store(checkout=tmp_path)
    made.create()
    return made


def template(store: Store, images: Sequence[Image], name: str = "") -> Path:
    """Create a template with the blobs of these images, at its real path or under another name."""
    path = templates._root() / name if name else templates._path(images)
    blobs = path / templates.CONTENT / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for image in images:
        for digest in store.blobs(image):
            (blobs / digest.removeprefix("sha256:")).touch()
    (path / "images.json").write_text(json.dumps({image.name: image.digest for image in images}))
    return path


def disk_with(free: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk have `free` bytes at each of the next checks."""
    left = list(free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: (0, 0, left.pop(0)))


def test_layers_count_twice_and_the_eviction_threshold_once() -> None:
    assert space.needed(0, 0) == MARGIN
    assert space.needed(3 * GB, 200 * GB) == 6 * GB + 2 * GB + MARGIN


@pytest.mark.parametrize(
    ("lacking", "free", "tried", "step"),
    [
        (5, MARGIN + 10, [], Step.CREATE),
        (5, MARGIN + 9, [], Step.DELETE_OTHERS),
        (5, MARGIN + 10, [Step.DELETE_OTHERS], Step.CREATE),
        (5, MARGIN + 9, [Step.DELETE_OTHERS], Step.DELETE_ALL),
        (5, MARGIN + 11, [Step.DELETE_OTHERS, Step.DELETE_ALL], Step.CREATE),
        (5, MARGIN + 9, [Step.DELETE_OTHERS, Step.DELETE_ALL], Step.REFUSE),
        (0, MARGIN, [], Step.CREATE),
        (0, MARGIN - 1, [], Step.DELETE_OTHERS),
        (0, MARGIN - 1, [Step.DELETE_OTHERS], Step.REFUSE),
    ],
)
def test_the_next_step(lacking: int, free: int, tried: list[Step], step: Step) -> None:
    assert space.next_step(lacking, Disk(0, free), tried) is step


def test_only_what_the_nearest_template_lacks_must_be_unpacked(store: Store) -> None:
    old, same, changed = (image_of(store, name, name.encode()) for name in ("old", "same", "changed"))
    both = [same, changed]
    assert templates.lacking_bytes(store, both) == store.size(store.lacking(both, ()))
    template(store, [old, same], "near")
    assert templates.lacking_bytes(store, both) == store.size([*store.blobs(changed), same.digest])
    template(store, both)
    assert templates.lacking_bytes(store, both) == 0


def test_nothing_is_deleted_while_there_is_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of(store, "a", b"first")
    unused = template(store, [image], "unused")
    disk_with([MARGIN], monkeypatch)
    space.ensure(store, [image], lambda: 0, pytest.fail)
    assert unused.exists()


def test_unused_caches_are_deleted_in_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = image_of(store, "a", b"first"), image_of(store, "b", b"other")
    image = image_of(store, "a", b"second")
    near, far = template(store, [first], "near"), template(store, [other], "far")
    used = template(store, [other], "used")
    state = State("id", "kept", "/checkout", 1, templates=[str(used)])
    StateFile(clusters_root() / "id").save(state)

    disk_with([0, MARGIN], monkeypatch)
    space.ensure(store, [image], lambda: 0, lambda _text: None)
    assert not far.exists() and near.exists() and used.exists()
    assert not store.blob(first.digest).exists()
    assert store.has("convoy/a:1") and store.has("convoy/b:1")

    disk_with([0, 0, MARGIN + 2], monkeypatch)
    space.ensure(store, [image], lambda: 1, lambda _text: None)
    assert not near.exists() and used.exists()


def test_a_full_disk_is_refused_with_what_to_delete(
    store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StateFile(clusters_root() / "id").save(State("id", "kept", "/checkout", 1))
    disk_with([0, 0, 9 * GB], monkeypatch)
    with pytest.raises(ClusterError) as caught:
        space.ensure(store, [], lambda: 4 * GB, lambda _text: None)
    text = str(caught.value)
    assert text.startswith(f"the cluster needs 11.0 GB in {cache}, 9.0 GB are free; delete ")
    assert "`down --name kept` in /checkout" in text
    assert "wheelhouses" in text


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (ClusterError("ctr: exit code 1\nwrite /x: no space left on device"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (ClusterError("image convoy/a has not been built"), False),
    ],
)
def test_an_error_of_a_full_disk_says_what_to_delete(
    cache: Path, error: ClusterError | OSError, full: bool
) -> None:
    text = space.explain(error)
    assert text.startswith(str(error))
    assert (f"buildah in {cache}" in text) is full
    assert space.explain(ClusterError(text)) == text
