"""Downloads the cluster's programs if the internet is reachable; otherwise builds them from Go modules."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from e2e.cluster import files, versions
from e2e.cluster.downloads import fetch_checked, reachable, unpack_programs
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, stream
from e2e.cluster.state import all_states
from e2e.cluster.versions import Tool

MODULE = Path(__file__).with_name("binaries")
GO_NEEDED = (1, 26)
_SET, _KUBE = "cluster-", "kubernetes-"
_KEEP_SETS = 2 * len(versions.RELEASES)
"""Sets of programs to keep besides those of existing clusters: every Kubernetes version for two checkouts."""
_KEEP_TOOLS = 8
"""Folders to keep of programs that are not part of a cluster."""


def architecture() -> str:
    """Return Go's name for this machine's processor architecture."""
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    try:
        return known[platform.machine()]
    except KeyError:
        raise ClusterError(
            f"processor {platform.machine()} is not supported; known: {', '.join(known)}"
        ) from None


def kube_key() -> str:
    """Return a key for the Kubernetes programs: their version and a digest of our Go module's files."""
    release = versions.release()
    digest = hashlib.sha256()
    for name in (f"{release.module}.mod", f"{release.module}.sum", "main.go"):
        digest.update(name.encode() + b"\0" + (MODULE / name).read_bytes())
    return f"{_KUBE}{release.kubernetes}-{digest.hexdigest()[:10]}"


def folder() -> Path:
    """Return the folder of links to this checkout's versions of the programs. It may not exist yet."""
    digest = hashlib.sha256(kube_key().encode())
    for name in versions.BASE_TOOLS:
        digest.update(versions.TOOLS[name].version.encode())
    return _root() / f"{_SET}{digest.hexdigest()[:10]}"


def ensure(progress: Progress) -> Path:
    """Download or build the cluster's programs if they are missing. Return their folder."""
    final = folder()
    if (final / "complete").exists():
        os.utime(final)
        return final
    with files.locked(_root() / ".lock", deadline=3600, what="the programs of the cluster"):
        if (final / "complete").exists():
            return final
        parts = [_kube(progress), *(_tool(name, progress) for name in versions.BASE_TOOLS)]
        with files.building(final) as temporary:
            for part in parts:
                for program in part.iterdir():
                    (temporary / program.name).symlink_to(program)
            (temporary / "complete").touch()
        _prune_unused()
    progress.report(f"programs are in {final}")
    return final


def tool(name: str, progress: Progress) -> Path:
    """Return the path of a program that is not part of a cluster (see versions.TOOLS). Download or build it
    if missing.
    """
    if name not in versions.TOOLS:
        raise ClusterError(f"no tool {name}; known: {', '.join(versions.TOOLS)}")
    program = _tool_folder(name) / versions.TOOLS[name].programs[0]
    # A folder is complete once it exists, so do not wait for the lock, which a build holds for minutes.
    if not program.exists():
        with files.locked(_root() / ".lock", deadline=3600, what="the programs of the cluster"):
            _tool(name, progress)
    os.utime(program.parent)
    return program


def _prune_unused() -> None:
    try:
        in_use = {Path(state.options["binaries"]) for state in all_states()}
    except ClusterError:
        # It is unknown which programs the clusters of another version of this code use, so keep all.
        return
    prune(_root(), in_use)


def prune(root: Path, in_use: Collection[Path]) -> None:
    """Delete programs that were not used for long. Keep those in the folders `in_use`.

    The caller holds the lock of the programs.
    """
    folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    sets = _by_age(path for path in folders if path.name.startswith(_SET))
    kept = {*sets[-_KEEP_SETS:], *in_use}
    linked = {link.readlink().parent for one in kept for link in one.glob("*") if link.is_symlink()}
    of_sets = (_KUBE, *(f"{name}-" for name in versions.BASE_TOOLS))
    parts = [path for path in folders if path.name.startswith(of_sets)]
    tools = _by_age(path for path in folders if path not in sets and path not in parts)
    stale = [*(path for path in sets if path not in kept), *(path for path in parts if path not in linked)]
    for path in [*stale, *tools[:-_KEEP_TOOLS]]:
        shutil.rmtree(path, ignore_errors=True)


def _by_age(folders: Iterable[Path]) -> list[Path]:
    return sorted(folders, key=lambda path: path.stat().st_mtime)


def _root() -> Path:
    return files.cache_root() / "binaries"


def _kube(progress: Progress) -> Path:
    final = _root() / kube_key()
    if final.exists():
        return final
    with files.building(final) as temporary:
        if reachable(versions.KUBE_ARCHIVE):
            _download_kube(temporary, progress)
        else:
            _build_kube(temporary, progress)
    return final


def _download_kube(target: Path, progress: Progress) -> None:
    arch, release = architecture(), versions.release()
    for program in versions.KUBE:
        progress.report(f"downloading {program}")
        if program == "etcd":
            address = versions.ETCD_ARCHIVE.format(v=release.etcd, arch=arch)
            archive = fetch_checked(address, versions.ETCD_SUMS.format(v=release.etcd))
            unpack_programs(archive, ["etcd"], target)
        else:
            address = versions.KUBE_ARCHIVE.format(v=release.kubernetes, arch=arch, program=program)
            files.write(target / program, fetch_checked(address, address + ".sha256"), mode=0o755)


def _build_kube(target: Path, progress: Progress) -> None:
    release = versions.release()
    major, minor, _ = release.kubernetes.split(".")
    package = "k8s.io/component-base/version"
    stamps = {
        "gitVersion": f"v{release.kubernetes}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    flags = " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in stamps.items())])
    command = ["build", f"-modfile={release.module}.mod", "-trimpath", "-ldflags", flags, "-o"]
    with progress.long(f"building Kubernetes {release.kubernetes} and etcd from Go modules (minutes, once)"):
        _go([*command, str(target / "kube"), "."], target, cwd=MODULE)
    for program in versions.KUBE:
        (target / program).symlink_to("kube")


def _tool_folder(name: str) -> Path:
    return _root() / f"{name}-{versions.TOOLS[name].version}"


def _tool(name: str, progress: Progress) -> Path:
    tool, final = versions.TOOLS[name], _tool_folder(name)
    if final.exists():
        return final
    with files.building(final) as temporary:
        if tool.archive and reachable(tool.archive):
            _download_tool(tool, temporary, progress)
        else:
            with progress.long(f"building {name} {tool.version} from Go modules"):
                packages = [f"{package}@{tool.version}" for package in tool.packages]
                _go(["install", "-trimpath", "-ldflags", "-s -w", *packages], temporary)
    return final


def _download_tool(tool: Tool, target: Path, progress: Progress) -> None:
    version, arch = tool.version.removeprefix("v"), architecture()
    address = tool.archive.format(v=version, arch=arch)
    progress.report(f"downloading {address}")
    archive = fetch_checked(address, tool.sums.format(v=version, arch=arch))
    unpack_programs(archive, tool.programs, target)


def build(module: Path, program: Path, package: str = ".") -> None:
    """Build the file `program` from a package of the Go module in the folder `module`, or of a module that
    it requires.
    """
    _go(["build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), package], program.parent, cwd=module)


def go() -> Path:
    """Return the path of the Go tool. Raises ClusterError if Go is missing or too old."""
    needed = ".".join(map(str, GO_NEEDED))
    own = files.cache_root() / "go" / "bin" / "go"
    found = (
        shutil.which("go")
        or shutil.which("go", path="/usr/local/go/bin")
        or (str(own) if own.exists() else "")
    )
    if not found:
        raise ClusterError(f"Go {needed} or newer is needed to build the cluster's programs; run `make host`")
    # In our module's folder, Go reports the Go version that it uses to build the module. It may have to
    # download this version first.
    version = re.search(r"go(\d+)\.(\d+)", run([found, "env", "GOVERSION"], cwd=MODULE, deadline=300))
    if not version or (int(version[1]), int(version[2])) < GO_NEEDED:
        raise ClusterError(f"{found} is older than Go {needed}; remove it or run `make host`")
    return Path(found)


def _go(arguments: Sequence[str], target: Path, cwd: Path | None = None) -> None:
    log = _root() / "build.log"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(target), "GOWORK": "off"}
    stream([go(), *arguments], deadline=3000, log=log, env=environment, cwd=cwd)
