"""The commands of pages, and which of them no test plays, with the reason.

Those of tutorials are played where a page has them (`e2e.docs.tutorial`), but for those to be read alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from e2e.docs.tutorial import CHECKOUT, FOLDER, Block, blocks

_UPGRADE = "helm -n convoy-system upgrade convoy charts/convoy --reset-then-reuse-values"
_IMAGES = "make images PUSH=registry.example.com/convoy"
NOT_RUN = {
    ("README.md", "make demo"): "what CI itself is, and what makes the cluster",
    ("README.md", "kubectl delete --ignore-not-found -f examples/gpt.yaml"): "it watches until one ends it",
    ("README.md", f"{_IMAGES} TAG=v1"): "needs a registry and a cluster of one's own",
    ("docs/install.md", f"{_IMAGES} TAG=v1"): "needs a registry of one's own",
    ("docs/install.md", "kubectl -n NAMESPACE patch serviceaccount"): "needs a registry that wants a login",
    ("docs/install.md", "kubectl create namespace convoy-system"): "comes before the installation",
    ("docs/install.md", "helm install convoy"): "needs a registry and a cluster of one's own",
    ("docs/install.md", "python3 -m venv"): "installs what the tests have",
    ("docs/install.md", f"{_UPGRADE} --set dashboard.enabled"): "changes the release, and runs on",
    ("docs/install.md", f"{_IMAGES} TAG=v2"): "needs a registry and a cluster of one's own",
    ("docs/install.md", "kubectl delete trainingjobs --all"): "removes Convoy",
    ("docs/install.md", "helm uninstall convoy -n convoy-system --no-hooks"): "removes Convoy",
    ("docs/install.md", "kubectl delete crd"): "removes Convoy",
    ("docs/checkpoints.md", "kubectl apply -f examples/store.yaml"): "needs a bucket and a volume",
    ("CONTRIBUTING.md", "make venv"): "what CI itself is",
    ("docs/checkpointstore.md", "kubectl -n convoy-system create secret"): "needs a bucket of one's own",
    ("docs/checkpointstore.md", "kubectl apply -f examples/volumes"): "changes the release",
    ("docs/checkpointstore.md", "convoy-env/bin/pip install"): "installs what the tests have",
    ("docs/dashboard.md", f"{_UPGRADE} --set dashboard.ingress"): "needs an ingress controller",
    ("docs/python-client.md", "python3 -m venv"): "installs what the tests have",
    ("docs/reference/cli.md", "python3 -m venv"): "installs what the tests have",
    ("docs/runbooks/convoy-checkpoints-damaged.md", "kubectl"): "has a shell on a node, with a public image",
    ("docs/runbooks/convoy-queue-slow.md", "leader="): "needs a metrics-server",
    ("docs/runbooks/convoy-queue-stuck.md", "kubectl"): "needs a metrics-server",
    ("docs/slow-nodes.md", "convoy guard release"): "takes nodes out of service, or needs one that is",
    ("docs/security.md", "kubectl -n convoy-system delete secret convoy-ca"): "starts all agents anew",
}
"""Page and how the block begins -> why no test plays it. They were run by hand."""
_WORD = re.compile(r"\b(?:JOB|NODE|NAMESPACE|NAME|POD|ADDRESS|R)\b")


def pages() -> list[Path]:
    """Pages for people that may have commands."""
    found = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
    return [
        path for path in found if path.parent != FOLDER and not path.is_relative_to(CHECKOUT / "docs/bench")
    ]


def commands(page: Path) -> Iterator[Block]:
    """The blocks of a page that are commands."""
    return (one for one in blocks(page.read_text()) if one.is_commands or one.language == "console")


def reason_not_run(page: Path, block: Block) -> str:
    """Why no test plays this block of a page; empty when one does."""
    name = str(page.relative_to(CHECKOUT))
    return next(
        (why for (of, begins), why in NOT_RUN.items() if of == name and block.text.startswith(begins)), ""
    )


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Commands with what a reader would put for JOB, NODE and the like."""
    return _WORD.sub(lambda word: values[word[0]], text)
