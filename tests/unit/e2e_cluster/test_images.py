"""Tests of the image store, of the contents of images, and of checked downloads."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest
from e2e.cluster import downloads
from e2e.cluster.errors import ClusterError
from e2e.cluster.oci import CONTAINERD_NAME, REF_NAME, Image, Store, full_name, layer
from e2e.images.build import COMPILED_BY, DOCKERFILES, check_sizes, compiling_arguments, kernel_sources
from e2e.images.recipes import RECIPES, Recipe, chart_values, distribution, requirements, wanted
from e2e.setup import host

PROJECT = {
    "name": "Convoy.Operator",
    "dependencies": ["pyyaml>=6"],
    "optional-dependencies": {
        "base": ["numpy>=2"],
        "workloads": ["convoy-operator[base]", "torch==2.13.0", "torchvision"],
        "dev": ["convoy-operator[workloads, base]", "pytest"],
    },
}


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("convoy/operator:dev", "docker.io/convoy/operator:dev"),
        ("busybox", "docker.io/library/busybox:latest"),
        ("localhost/x:1", "localhost/x:1"),
        ("registry.example:5000/a/b", "registry.example:5000/a/b:latest"),
        ("docker.io/convoy/pause:1", "docker.io/convoy/pause:1"),
    ],
)
def test_references_are_completed_as_by_the_kubelet(short: str, full: str) -> None:
    assert full_name(short) == full


def archive(store: Store, images: list[Image], present: set[str]) -> dict[str, bytes]:
    buffer = io.BytesIO()
    store.write_archive(images, buffer, present)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def test_an_archive_holds_only_what_the_receiver_lacks(tmp_path: Path) -> None:
    store = Store(tmp_path, Path("/checkout"))
    store.create()
    image = store.add("convoy/a:1", {"os": "linux"}, [layer({"f": (b"one", 0o644)})])
    manifest, config, content = store.blobs(image)
    full = archive(store, [image], set())
    assert {name for name in full if name.startswith("blobs/")} == {
        f"blobs/{digest.replace(':', '/')}" for digest in (manifest, config, content)
    }
    entry = json.loads(full["index.json"])["manifests"][0]
    assert entry["annotations"][CONTAINERD_NAME] == "docker.io/convoy/a:1"
    partial = archive(store, [image], {manifest, config, content})
    assert [name for name in partial if name.startswith("blobs/")] == [f"blobs/{manifest.replace(':', '/')}"]


def stores(tmp_path: Path) -> list[Store]:
    """Return one store for each of two checkouts, which exist."""
    checkouts = [tmp_path / "one", tmp_path / "two"]
    for path in checkouts:
        path.mkdir()
    made = [Store(tmp_path / "images", path) for path in checkouts]
    made[0].create()
    return made


def test_checkouts_share_blobs_but_not_names(tmp_path: Path) -> None:
    one, two = stores(tmp_path)
    shared = layer({"f": (b"same", 0o644)})
    first = one.add("convoy/a:dev", {"os": "linux", "author": "one"}, [shared])
    second = two.add("convoy/a:dev", {"os": "linux", "author": "two"}, [shared])
    assert first.digest != second.digest
    assert one.get("convoy/a:dev") == first
    assert two.get("convoy/a:dev") == second
    assert one.blobs(first)[2] == two.blobs(second)[2]
    newer = one.add("convoy/a:dev", {"os": "linux", "author": "newer"}, [shared])
    assert one.prune() == 2
    assert one.has("convoy/a:dev") and two.has("convoy/a:dev")
    assert not one.blob(first.digest).exists()
    assert one.images() == {newer.name: newer}
    with pytest.raises(ClusterError, match="has not been built"):
        one.get("convoy/b")


def test_images_of_a_deleted_checkout_are_deleted(tmp_path: Path) -> None:
    one, two = stores(tmp_path)
    kept = one.add("convoy/a:dev", {"os": "linux", "author": "one"}, [layer({"f": (b"same", 0o644)})])
    two.add("convoy/a:dev", {"os": "linux", "author": "two"}, [layer({"f": (b"same", 0o644)})])
    (tmp_path / "two").rmdir()
    assert one.prune() == 2
    assert two.images() == {}
    assert one.has("convoy/a:dev")
    assert one.images() == {kept.name: kept}
    assert one.prune() == 0


def test_packed_layers_are_unpacked_and_checked(tmp_path: Path) -> None:
    store = Store(tmp_path, Path("/checkout"))
    store.create()
    plain = layer({"f": (b"content", 0o644)})
    built = store.add("convoy/a:1", {"os": "linux"}, [plain])
    manifest = json.loads(store.blob(built.digest).read_bytes())

    def pushed(content: bytes) -> None:
        packed = gzip.compress(content)
        digest = hashlib.sha256(packed).hexdigest()
        (store.layout / "blobs" / "sha256" / digest).write_bytes(packed)
        layers = [
            {"mediaType": "x+gzip", "digest": f"sha256:{digest}", "size": len(packed)},
        ]
        text = json.dumps({**manifest, "layers": layers}).encode()
        name = hashlib.sha256(text).hexdigest()
        (store.layout / "blobs" / "sha256" / name).write_bytes(text)
        entry = {
            "digest": f"sha256:{name}",
            "size": len(text),
            "annotations": {REF_NAME: store.tag("convoy/a:1")},
        }
        (store.layout / "index.json").write_text(json.dumps({"manifests": [entry]}))
        store.blob(manifest["layers"][0]["digest"]).unlink()

    pushed(plain)
    assert store.enter("convoy/a:1") == built
    assert store.blob(store.blobs(built)[2]).read_bytes() == plain
    pushed(b"something else")
    with pytest.raises(ClusterError, match="unpacked digest differs"):
        store.enter("convoy/a:1")


def test_requirements_follow_extras_that_name_extras() -> None:
    assert requirements(PROJECT, "dev") == ["numpy>=2", "pytest", "pyyaml>=6", "torch==2.13.0", "torchvision"]
    assert distribution('Jinja2>=3; python_version > "3"') == "jinja2"
    with pytest.raises(ClusterError, match="no extra"):
        requirements(PROJECT, "missing")


def test_an_image_gets_exactly_the_chosen_requirements() -> None:
    assert wanted(Recipe("t", "workloads", only=("torch",)), PROJECT) == ["torch==2.13.0"]
    with pytest.raises(ClusterError, match="does not contain jax"):
        wanted(Recipe("t", "workloads", only=("jax",)), PROJECT)


def test_parent_images_come_before_their_children() -> None:
    names = [recipe.name for recipe in RECIPES]
    for recipe in RECIPES:
        assert recipe.parent is None or names.index(recipe.parent) < names.index(recipe.name)


def wheel_of(folder: Path, contents: dict[str, str]) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "convoy.whl", "w") as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    return folder


def test_an_image_with_kernels_has_a_stage_that_compiles_them(tmp_path: Path) -> None:
    arguments = compiling_arguments("base", wheel_of(tmp_path / "dist", {}))
    for recipe in RECIPES:
        text = (DOCKERFILES / f"{recipe.name}.Dockerfile").read_text()
        assert ("AS kernels\n" in text) is recipe.kernels
        for name in arguments if recipe.kernels else ():
            assert f"ARG {name}=" in text
    assert any(recipe.kernels for recipe in RECIPES)


def test_only_what_the_kernels_are_made_from_compiles_them_again(tmp_path: Path) -> None:
    for name in COMPILED_BY:
        assert (DOCKERFILES.parent / "workloads" / name).exists()
    first = {"convoy_workloads/kernels/sources/a.h": "a", COMPILED_BY[0]: "b", "convoy/cli.py": "c"}
    digests = [
        kernel_sources(wheel_of(tmp_path / str(number), first | changed))
        for number, changed in enumerate(
            [{}, {"convoy/cli.py": "d"}, {"convoy_workloads/kernels/sources/a.h": "e"}, {COMPILED_BY[0]: "f"}]
        )
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    "sums",
    ["ABCD\n", "abcd  dir/file.tgz\nffff  other", "ffff  x\nabcd *file.tgz\n"],
    ids=["bare", "path", "binary"],
)
def test_published_digests_are_read_in_the_usual_forms(sums: str) -> None:
    assert downloads.listed_digest(sums, "file.tgz") == "abcd"


def test_a_file_without_a_published_digest_is_refused() -> None:
    with pytest.raises(ClusterError, match="do not list"):
        downloads.listed_digest("abcd  other.tgz\n", "file.tgz")


def test_the_newest_go_that_fits_is_picked() -> None:
    def release(version: str, *, stable: bool = True) -> dict[str, object]:
        archive = {"os": "linux", "arch": "amd64", "kind": "archive", "filename": version}
        return {"version": version, "stable": stable, "files": [{**archive, "arch": "arm64"}, archive]}

    releases = [release("go1.27rc1", stable=False), release("go1.26.8"), release("go1.25.1")]
    assert host.newest_archive(releases, "amd64")["filename"] == "go1.26.8"
    with pytest.raises(ValueError, match="riscv64"):
        host.newest_archive(releases, "riscv64")
    assert host.parse_go("go1.26.8") == (1, 26)
    assert host.parse_go("devel") is None


@pytest.mark.parametrize("makes", [True, False])
def test_python_without_ensurepip_gets_the_package_with_ensurepip(
    makes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "can_make_environments", lambda: makes)
    monkeypatch.setattr(host, "present", lambda names: True)
    assert host.missing_packages() == ([] if makes else ["python3-venv"])


@pytest.mark.parametrize(
    ("prefix", "values"),
    [
        ("host/convoy", "--set images.registry=host --set images.tag=v1"),
        (
            "host/a/convoy/",
            "--set images.registry=host/a --set images.tag=v1",
        ),
        (
            "host/team",
            "--set images.registry=host --set images.tag=v1 --set images.operator=team/operator "
            "--set images.agent=team/agent --set images.workloads=team/workloads "
            "--set images.serving=team/serving --set images.sklearn=team/sklearn "
            "--set images.tools=team/tools --set images.ray=team/ray --set dashboard.image=team/dashboard",
        ),
        (
            "localhost:5000",
            "--set images.registry=localhost:5000 --set images.tag=v1 --set images.operator=operator "
            "--set images.agent=agent --set images.workloads=workloads "
            "--set images.serving=serving --set images.sklearn=sklearn --set images.tools=tools "
            "--set images.ray=ray --set dashboard.image=dashboard",
        ),
    ],
)
def test_the_chart_finds_the_pushed_images(prefix: str, values: str) -> None:
    assert chart_values(prefix, "v1") == values


def test_images_over_the_limit_are_named_with_their_sizes(tmp_path: Path) -> None:
    store = Store(tmp_path, Path("/checkout"))
    store.create()
    for name, size in (("small", 1_000_000), ("large", 3_000_000)):
        store.add(f"convoy/{name}:1", {"os": "linux"}, [layer({"f": (b"0" * size, 0o644)})])
    names = ["convoy/small:1", "convoy/large:1"]
    check_sizes(store, names, max_mb=4)
    with pytest.raises(ClusterError, match=r"^convoy/large:1 has 3 MB: the limit is 2 MB\..*CONVOY_CUDA"):
        check_sizes(store, names, max_mb=2)
