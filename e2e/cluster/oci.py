"""The machine's image store: an OCI layout that all checkouts share, and a catalogue for each checkout."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from e2e.cluster import files
from e2e.cluster.errors import ClusterError

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
REF_NAME = "org.opencontainers.image.ref.name"
# Annotation that names an image; containerd gives the imported image this name.
CONTAINERD_NAME = "io.containerd.image.name"
_OWNER = "checkout-"
"""Prefix of the files that contain the path of a checkout. The rest of a file's name is the scope."""


@dataclass(frozen=True)
class Image:
    """An image of the store. `name` is the full name as containerd writes it; `digest` and `size` are the
    manifest's.
    """

    name: str
    digest: str
    size: int


def full_name(reference: str) -> str:
    """Return the full form of a reference, as containerd does: `convoy/x` becomes
    `docker.io/convoy/x:latest`.
    """
    first, slash, _ = reference.partition("/")
    if not slash:
        reference = f"docker.io/library/{reference}"
    elif "." not in first and ":" not in first and first != "localhost":
        reference = f"docker.io/{reference}"
    return reference if ":" in reference.rsplit("/", 1)[-1] or "@" in reference else f"{reference}:latest"


class Store:
    """An image store whose OCI layout is in `folder`. Each checkout (`scope`) has its own images of the
    same name.
    """

    def __init__(self, folder: Path | None = None, checkout: Path = files.CHECKOUT) -> None:
        self.folder = folder or files.cache_root() / "images"
        self.layout = self.folder / "layout"
        self.scope = hashlib.sha256(str(checkout).encode()).hexdigest()[:8]
        self.catalogue = self.folder / f"catalogue-{self.scope}.json"
        self._checkout = checkout

    def lock(self) -> Any:
        """Return a context manager that keeps other processes from writing to the store."""
        return files.locked(self.folder / ".lock", deadline=1800, what="the image store")

    def create(self) -> None:
        """Create an empty layout if there is none."""
        (self.layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        if not (self.layout / "index.json").exists():
            files.write(self.layout / "index.json", json.dumps(_index([])))
            files.write(self.layout / "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))

    def images(self) -> dict[str, Image]:
        """Return this checkout's images by full name."""
        try:
            entries = json.loads(self.catalogue.read_text())
        except FileNotFoundError:
            return {}
        return {name: Image(name, **entry) for name, entry in entries.items()}

    def get(self, reference: str) -> Image:
        """Return one image. Raises ClusterError if this checkout has not built it."""
        images = self.images()
        try:
            return images[full_name(reference)]
        except KeyError:
            known = ", ".join(sorted(images)) or "none"
            raise ClusterError(
                f"image {reference} has not been built here (`images` builds); known: {known}"
            ) from None

    def has(self, reference: str) -> bool:
        """Return True if the image and all its blobs exist."""
        image = self.images().get(full_name(reference))
        if image is None or not self.blob(image.digest).exists():
            return False
        return all(self.blob(digest).exists() for digest in self.blobs(image))

    def tag(self, reference: str) -> str:
        """Return the name that an image of this checkout has in the shared layout."""
        return f"{self.scope}/{full_name(reference)}"

    def enter(self, reference: str) -> Image:
        """Unpack the layers of the image that the layout has under `tag(reference)`. Add this image to the
        catalogue.

        Build tools identify unpacked layers by their digest. A build on top of this image therefore does
        not write these layers again, and no node has to unpack them.
        """
        tag = self.tag(reference)
        found = [entry for entry in self._entries() if entry.get("annotations", {}).get(REF_NAME) == tag]
        if not found:
            raise ClusterError(f"the image store has no {tag}")
        manifest = json.loads(self.blob(found[0]["digest"]).read_bytes())
        config = json.loads(self.blob(manifest["config"]["digest"]).read_bytes())
        diffs = config["rootfs"]["diff_ids"]
        plain = [self._plain(layer, diff) for layer, diff in zip(manifest["layers"], diffs, strict=True)]
        return self._name(reference, {**manifest, "layers": plain})

    def _plain(self, layer: dict[str, Any], diff: str) -> dict[str, Any]:
        """Return the descriptor of a layer's unpacked form. Unpack the layer if that form does not exist
        yet.
        """
        path = self.blob(diff)
        if layer["digest"] != diff and not path.exists():
            if not layer["mediaType"].endswith("gzip"):
                raise ClusterError(
                    f"layer {layer['digest']} is packed as {layer['mediaType']}; only gzip is supported"
                )
            unpacker, digest = zlib.decompressobj(wbits=31), hashlib.sha256()
            temporary = path.with_name(f".{path.name}")
            with self.blob(layer["digest"]).open("rb") as packed, temporary.open("wb") as out:
                while block := packed.read(1 << 20):
                    data = unpacker.decompress(block)
                    digest.update(data)
                    out.write(data)
            if f"sha256:{digest.hexdigest()}" != diff:
                temporary.unlink()
                raise ClusterError(
                    f"layer {layer['digest']}: its unpacked digest differs from the image's ({diff})"
                )
            temporary.rename(path)
        return {"mediaType": LAYER_TYPE, "digest": diff, "size": path.stat().st_size}

    def _name(self, reference: str, manifest: dict[str, Any]) -> Image:
        """Write a manifest, and add its image to the layout and the catalogue under the name `reference`."""
        entry = self._put(json.dumps(manifest).encode(), MANIFEST_TYPE)
        tag = self.tag(reference)
        others = [one for one in self._entries() if one.get("annotations", {}).get(REF_NAME) != tag]
        index = _index([*others, {**entry, "annotations": {REF_NAME: tag}}])
        files.write(self.layout / "index.json", json.dumps(index))
        image = Image(full_name(reference), entry["digest"], entry["size"])
        entries = {known.name: known for known in self.images().values()} | {image.name: image}
        text = {name: {"digest": one.digest, "size": one.size} for name, one in sorted(entries.items())}
        files.write(self.folder / f"{_OWNER}{self.scope}", str(self._checkout))
        files.write(self.catalogue, json.dumps(text, indent=1) + "\n")
        return image

    def add(self, reference: str, config: dict[str, Any], layers: Iterable[bytes]) -> Image:
        """Create an image from uncompressed layer tars. `config` is the image's configuration without
        `rootfs`.
        """
        descriptors = [self._put(layer, LAYER_TYPE) for layer in layers]
        rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in descriptors]}
        described = self._put(json.dumps({**config, "rootfs": rootfs}).encode(), CONFIG_TYPE)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": described,
            "layers": descriptors,
        }
        return self._name(reference, manifest)

    def blobs(self, image: Image) -> list[str]:
        """Return the digests of an image's manifest, configuration and layers, in this order."""
        manifest = json.loads(self.blob(image.digest).read_bytes())
        return [
            image.digest,
            manifest["config"]["digest"],
            *(layer["digest"] for layer in manifest["layers"]),
        ]

    def bytes_of(self, image: Image) -> int:
        """Return the total size of an image's blobs in bytes."""
        return self.size(self.blobs(image))

    def size(self, digests: Iterable[str]) -> int:
        """Return the total size of these blobs in bytes."""
        return sum(self.blob(digest).stat().st_size for digest in digests)

    def lacking(self, images: Iterable[Image], present: Collection[str]) -> list[str]:
        """Return the digests of the blobs that a receiver of the images needs if it has the blobs `present`.

        An import starts at a manifest, so the receiver needs all manifests, even those in `present`.
        """
        images = list(images)
        manifests = {image.digest for image in images}
        digests = dict.fromkeys(digest for image in images for digest in self.blobs(image))
        return [digest for digest in digests if digest not in present or digest in manifests]

    def blob(self, digest: str) -> Path:
        """Return the path of a blob."""
        return self.layout / "blobs" / digest.replace(":", "/")

    def write_archive(self, images: Iterable[Image], out: IO[bytes], present: Collection[str] = ()) -> None:
        """Write an OCI archive of the images to a file that need not seek, without the blobs in `present`.

        The receiver already has the blobs in `present` and completes the images with them.
        """
        images = list(images)
        entries = [
            {
                "mediaType": MANIFEST_TYPE,
                "digest": image.digest,
                "size": image.size,
                "annotations": {CONTAINERD_NAME: image.name, REF_NAME: image.name.rsplit(":", 1)[-1]},
            }
            for image in images
        ]
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
            _add(tar, "index.json", json.dumps(_index(entries)).encode())
            for digest in self.lacking(images, present):
                path = self.blob(digest)
                member = tarfile.TarInfo(f"blobs/{digest.replace(':', '/')}")
                member.size = path.stat().st_size
                member.mode = 0o444
                with path.open("rb") as content:
                    tar.addfile(member, content)

    def prune(self) -> int:
        """Remove images without a name, images of deleted checkouts, and blobs that no image uses. Return the
        number of deleted blobs.

        An image loses its name when another image gets the same name. The caller holds `lock`.
        """
        lost = self._deleted_checkouts()
        names = ((entry, entry.get("annotations", {}).get(REF_NAME)) for entry in self._entries())
        named = [entry for entry, name in names if name and name.partition("/")[0] not in lost]
        files.write(self.layout / "index.json", json.dumps(_index(named)))
        needed = set()
        for entry in named:
            needed |= set(self.blobs(Image("", entry["digest"], entry["size"])))
        removed = 0
        for path in (self.layout / "blobs" / "sha256").iterdir():
            if f"sha256:{path.name}" not in needed:
                path.unlink()
                removed += 1
        for scope in lost:
            for path in (*self.folder.glob(f"*-{scope}.json"), self.folder / f"{_OWNER}{scope}"):
                path.unlink(missing_ok=True)
        return removed

    def _deleted_checkouts(self) -> set[str]:
        """Return the scopes of checkouts whose folder does not exist."""
        owners = self.folder.glob(f"{_OWNER}*")
        return {one.name.removeprefix(_OWNER) for one in owners if not Path(one.read_text()).is_dir()}

    def _entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = json.loads((self.layout / "index.json").read_text())["manifests"]
        return entries

    def _put(self, content: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        path = self.layout / "blobs" / "sha256" / digest
        if not path.exists():
            files.write(path, content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _index(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o444) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def layer(entries: dict[str, tuple[bytes, int]]) -> bytes:
    """Return a layer tar with these files. `entries` maps a path to content and mode."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, (content, mode) in entries.items():
            _add(tar, path, content, mode)
    return buffer.getvalue()
