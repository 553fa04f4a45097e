"""Lists the command blocks of the documentation, and the reasons why no test runs some of them.

Tutorials are not included: a test runs each of them as a whole (`e2e.docs.tutorial`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from e2e.docs.tutorial import CHECKOUT, FOLDER, Block, blocks

_UPGRADE = "helm -n convoy-system upgrade convoy charts/convoy --reset-then-reuse-values"
_IMAGES = "make images PUSH=registry.example.com/convoy"
NOT_RUN = {
    ("README.md", "python3 -m venv"): "installs what the tests already have",
    ("README.md", "make demo"): "CI runs it, and it creates the tests' cluster",
    ("README.md", "kubectl apply -f examples/gpt.yaml"): "watches until interrupted",
    ("README.md", f"{_IMAGES} TAG=v1"): "needs a registry and a cluster of the reader",
    ("docs/install.md", f"{_IMAGES} TAG=v1"): "needs a registry of the reader",
    ("docs/install.md", "kubectl -n NAMESPACE patch serviceaccount"): "needs a registry with a login",
    ("docs/install.md", "kubectl create namespace convoy-system"): "precedes the installation",
    ("docs/install.md", "helm install convoy"): "needs a registry and a cluster of the reader",
    ("docs/install.md", "python3 -m venv"): "installs what the tests already have",
    ("docs/install.md", f"{_UPGRADE} --set dashboard.enabled"): "changes the release, does not end",
    ("docs/install.md", f"{_IMAGES} TAG=v2"): "needs a registry and a cluster of the reader",
    ("docs/install.md", "kubectl delete experiments --all"): "removes Convoy",
    ("docs/install.md", "helm uninstall convoy -n convoy-system --no-hooks"): "removes Convoy",
    ("docs/install.md", "kubectl delete crd"): "removes Convoy",
    ("docs/checkpoints.md", "kubectl apply -f examples/store.yaml"): "needs a bucket and a volume",
    ("CONTRIBUTING.md", "make venv"): "CI itself runs it",
    ("docs/checkpointstore.md", "kubectl -n convoy-system create secret"): "needs a bucket of the reader",
    ("docs/checkpointstore.md", "kubectl apply -f examples/volumes"): "changes the release",
    ("docs/checkpointstore.md", "convoy-env/bin/pip install"): "installs what the tests already have",
    ("docs/dashboard.md", f"{_UPGRADE} --set dashboard.ingress"): "needs an ingress controller",
    ("docs/python-client.md", "python3 -m venv"): "installs what the tests already have",
    ("docs/reference/cli.md", "python3 -m venv"): "installs what the tests already have",
    ("docs/runbooks/convoy-checkpoints-damaged.md", "kubectl"): "opens a shell on a node",
    ("docs/runbooks/convoy-queue-slow.md", "leader="): "needs a metrics-server",
    ("docs/runbooks/convoy-queue-stuck.md", "kubectl"): "needs a metrics-server",
    ("docs/slow-nodes.md", "convoy guard release"): "takes a node out of service, or needs a drained one",
    ("docs/serving.md", "convoy run"): "serves until Ctrl-C",
    ("docs/serving.md", "curl http://127.0.0.1:8080/v2/models/iris"): "needs a local service",
    ("docs/load.md", "convoy load"): "needs a local service",
    ("docs/quantize.md", "convoy quantize poet"): "needs a job of gpt that saves to a store",
    ("docs/quantize.md", "kubectl cp"): "needs a pod that mounts a volume",
    ("docs/experiment.md", ". convoy-env/bin/activate"): "installs what the tests already have",
    ("docs/experiment.md", "kubectl delete trainingjobs --all"): "changes the release, and deletes all jobs",
    ("docs/experiment.md", "convoy validate in-place.yaml"): "runs 18 jobs on nodes for faults",
    ("docs/experiment.md", "volume="): "needs the report of the experiment before it",
    ("docs/experiment-analysis.md", "convoy experiment verify"): "needs an experiment that has ended",
    ("docs/perturbations.md", "kubectl label node"): "keeps other jobs off a node",
    ("docs/engines/aperon.md", "sed "): "serves until Ctrl-C",
    ("docs/engines/aperon.md", "curl "): "needs a local service",
    ("docs/engines/aperon-index.md", "convoy run"): "makes a job that never ends",
    ("docs/engines/aperon-index.md", "mkdir "): "serves until Ctrl-C, and needs a store",
    ("docs/engines/fmplex.md", "convoy run"): "serves until Ctrl-C",
    ("docs/engines/fmplex.md", "kubectl exec fmplex-server-0-0"): "needs the ServingJob of the example",
    ("docs/engines/sklearn.md", "mkdir -p model"): "serves until Ctrl-C, and writes a model",
    ("docs/engines/orchestration.md", "convoy run"): "takes 20 minutes, and writes a folder",
    ("docs/engines/spotlight.md", "convoy run"): "takes minutes",
    ("docs/spotpool.md", "convoy spot requests JOB"): "needs a job of spotlight that has succeeded",
    ("docs/traces.md", "convoy trace record gpt"): "needs a job that trains, and a store",
    ("docs/traces.md", "convoy trace convert recorded"): "needs a job that has recorded traces",
    ("docs/traces.md", "convoy trace analyse chakra"): "needs the traces that the block before it converts",
    ("docs/traces.md", "convoy trace generate"): "writes a folder",
    ("docs/trainingjob.md", "kubectl wait"): "waits for the end of a training job",
    ("docs/security.md", "kubectl -n convoy-system delete secret convoy-ca"): "restarts all agents",
}
"""Page and first words of a block, and the reason why no test runs the block. Run the block by hand when you
add or change it.
"""
_WORD = re.compile(r"\b(?:JOB|SOURCE|NODE|NAMESPACE|NAME|POD|ADDRESS|ENGINE|R)\b")


def pages() -> list[Path]:
    """Return the hand-written pages that may contain commands, except tutorials."""
    found = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
    return [
        path for path in found if path.parent != FOLDER and not path.is_relative_to(CHECKOUT / "docs/bench")
    ]


def commands(page: Path) -> Iterator[Block]:
    """Return those blocks of a page that contain commands."""
    return (one for one in blocks(page.read_text()) if one.is_commands or one.language == "console")


def reason_not_run(page: Path, block: Block) -> str:
    """Return the reason why no test runs this block, or an empty string if a test does."""
    name = str(page.relative_to(CHECKOUT))
    return next(
        (why for (of, begins), why in NOT_RUN.items() if of == name and block.text.startswith(begins)), ""
    )


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Replace JOB, NODE and other placeholders in commands by the values that a reader would use."""
    return _WORD.sub(lambda word: values[word[0]], text)
