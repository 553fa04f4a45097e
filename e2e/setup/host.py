"""Prepares this machine for a local cluster: `python3 -m e2e.setup.host`, as root.

The module uses only the standard library. It prints what it installs, and does nothing if nothing is
missing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

# Debian packages, each with files or programs. A package counts as installed if one of them exists, so that
# the package manager is not needed for the check.
PACKAGES = {
    "runc": ("runc",),
    "containernetworking-plugins": ("/usr/lib/cni/bridge", "/opt/cni/bin/bridge"),
    "nftables": ("nft",),
    "iptables": ("iptables",),
    "conntrack": ("conntrack",),
    "iproute2": ("ip",),
    "util-linux": ("nsenter",),
    "e2fsprogs": ("mkfs.ext4",),
    "buildah": ("buildah",),
    "debootstrap": ("debootstrap",),
    "chromium": ("chromium",),
    "chromium-driver": ("chromedriver",),
    "gcc": ("gcc", "cc"),
    "libc6-dev": ("/usr/include/stdlib.h",),
    # Tests of alerts and dashboards use promtool, which is in this package.
    "prometheus": ("prometheus",),
}
VENV_PACKAGE = "python3-venv"
"""Debian package with the module ensurepip. Without ensurepip, new environments have no pip."""
GO_NEEDED = (1, 26)
GO_SITE = "https://go.dev/dl/"
RELEASES = "https://dl.k8s.io/"
# Each kubelet, containerd and program with watches needs several inotify instances. The usual limit of 128 is
# enough for one node only.
INOTIFY_INSTANCES = 1024
SERVICES = ("prometheus",)
"""Packages that start a service at their installation. Only their programs are needed."""
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin"


class SetupError(Exception):
    """Raised for a missing program or setting. The message says what to do."""


def report(text: str) -> None:
    """Print one line of progress."""
    print(f"host: {text}", file=sys.stderr, flush=True)


def present(names: tuple[str, ...]) -> bool:
    """Return True if one of these programs or files exists."""
    return any(
        Path(name).exists() if name.startswith("/") else shutil.which(name, path=_PATH) for name in names
    )


def can_make_environments() -> bool:
    """Return True if this Python can create environments with pip. On Debian, pip's module ensurepip may be
    missing.
    """
    return importlib.util.find_spec("ensurepip") is not None


def missing_packages() -> list[str]:
    """Return the names of the packages that must be installed."""
    missing = [package for package, names in PACKAGES.items() if not present(names)]
    return missing if can_make_environments() else [VENV_PACKAGE, *missing]


def install(packages: list[str]) -> None:
    """Install Debian packages with apt-get."""
    listed = " ".join(packages)
    if not shutil.which("apt-get"):
        raise SetupError(
            f"this machine has no apt-get; install the contents of these Debian packages: {listed}"
        )
    if os.geteuid() != 0:
        raise SetupError(f"packages are missing; run as root: apt-get install {listed}")
    report(f"installing {listed}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Wait while another package manager is busy. If the installation fails, update the package lists and try
    # again.
    command = [
        "apt-get",
        "install",
        "--yes",
        "--no-install-recommends",
        "-o",
        "DPkg::Lock::Timeout=120",
        *packages,
    ]
    for attempt in (1, 2):
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
        if done.returncode == 0:
            return disable_services([package for package in packages if package in SERVICES])
        if attempt == 1:
            report("updating the package lists")
            subprocess.run(
                ["apt-get", "update", "--quiet"], stdout=subprocess.DEVNULL, timeout=300, check=False
            )
    raise SetupError(f"apt-get could not install {listed}:\n{done.stdout.decode(errors='replace')[-2000:]}")


def disable_services(services: list[str]) -> None:
    """Stop and disable services that an installation has started. Do nothing without systemd."""
    if services and Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", "disable", "--now", *services], timeout=60, check=False)


def raise_limits() -> None:
    """Raise the kernel's limit of inotify instances to INOTIFY_INSTANCES, if it is lower."""
    if int(_INOTIFY.read_text()) >= INOTIFY_INSTANCES:
        return
    if os.geteuid() != 0:
        raise SetupError(
            "the kernel limit is too low;"
            f" run as root: sysctl -w fs.inotify.max_user_instances={INOTIFY_INSTANCES}"
        )
    report(f"raising fs.inotify.max_user_instances to {INOTIFY_INSTANCES} until the next boot")
    _INOTIFY.write_text(str(INOTIFY_INSTANCES))


def parse_go(version: str) -> tuple[int, int] | None:
    """Return major and minor version: (1, 26) for `go1.26.8`. None if `version` has another form."""
    found = re.match(r"go(\d+)\.(\d+)", version.strip())
    return (int(found[1]), int(found[2])) if found else None


def reachable(address: str, seconds: float = 4.0) -> bool:
    """Return True if the host of a web address accepts connections."""
    try:
        socket.create_connection((address.split("/")[2], 443), timeout=seconds).close()
    except OSError:
        return False
    return True


def go_folder() -> Path:
    """Return the folder into which this module installs Go."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "convoy" / "go"


def ensure_go() -> None:
    """Ensure that the cluster's programs can be downloaded, or built with a new enough Go. If neither is
    possible, install Go.
    """
    found = shutil.which("go", path=_PATH) or shutil.which("go", path=str(go_folder() / "bin"))
    if found:
        module = Path(__file__).resolve().parents[1] / "cluster" / "binaries"
        # In the module's folder, Go reports the Go version that it uses to build the module. It may have to
        # download this version first.
        reply = subprocess.run(
            [found, "env", "GOVERSION"], cwd=module, capture_output=True, text=True, timeout=300, check=False
        )
        version = parse_go(reply.stdout)
        if version and version >= GO_NEEDED:
            return
    if reachable(RELEASES):
        return
    needed = ".".join(map(str, GO_NEEDED))
    if not reachable(GO_SITE):
        raise SetupError(
            f"neither {RELEASES} nor {GO_SITE} can be reached, and no Go {needed} is installed to build the"
            f" cluster's programs: install Go {needed} or newer and put it on the PATH"
        )
    download_go(needed)


def download_go(needed: str) -> None:
    """Download the newest official Go, check its published digest, and install it in the cache folder."""
    try:
        with urllib.request.urlopen(f"{GO_SITE}?mode=json", timeout=30) as response:
            releases = json.load(response)
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        file = newest_archive(releases, arch)
        report(f"installing {file['version']} into {go_folder()}")
        with urllib.request.urlopen(GO_SITE + file["filename"], timeout=300) as response:
            content = response.read()
    except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
        raise SetupError(f"downloading Go {needed} from {GO_SITE} failed: {error}") from None
    if hashlib.sha256(content).hexdigest() != file["sha256"]:
        raise SetupError(f"{file['filename']} does not match its published digest; nothing was installed")
    go_folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=go_folder().parent) as temporary:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            tar.extractall(temporary, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(
                temporary
            )
        shutil.rmtree(go_folder(), ignore_errors=True)
        (Path(temporary) / "go").rename(go_folder())


def newest_archive(releases: list[dict[str, object]], arch: str) -> dict[str, str]:
    """Return the entry for this machine's archive in the newest stable release of Go's list."""
    for release in releases:
        version = parse_go(str(release.get("version", "")))
        if release.get("stable") and version and version >= GO_NEEDED:
            for file in release.get("files", []):  # type: ignore[attr-defined]
                if (file["os"], file["arch"], file["kind"]) == ("linux", arch, "archive"):
                    return dict(file)
    raise ValueError(f"the site lists no new enough release for linux/{arch}")


def main() -> None:
    """Prepare the machine."""
    try:
        if not sys.platform.startswith("linux"):
            raise SetupError("a local cluster needs Linux")
        if packages := missing_packages():
            install(packages)
        raise_limits()
        ensure_go()
    except SetupError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
