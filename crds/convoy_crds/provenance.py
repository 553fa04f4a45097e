"""The record of a finished TrainingJob: what its run consisted of, so that the run can be repeated."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from convoy_crds.meta import StatusModel

MAX_IMAGES = 32
MAX_NODES = 32
MAX_HARDWARE = 8
MAX_MISSING = 16
MAX_DEFAULTS_BYTES = 4096
"""Maximum bytes of the Engine's defaults as JSON."""
_Text = Annotated[str, Field(max_length=1024)]


class RunImage(StatusModel):
    """An image that a container of the job ran."""

    role: str
    container: str
    image: _Text
    """Image as the spec or the Engine names it."""
    digest: _Text = ""
    """Image as the node reports it, such as `registry/name@sha256:...`. An image that was loaded into the
    node has no registry: only `sha256:...`. Absent if no node reported it.
    """

    @property
    def pinned(self) -> str:
        """Return the image by its digest; empty without a digest of a registry."""
        repository, at, digest = self.digest.rpartition("@")
        if not at:
            return ""
        head, slash, name = self.image.partition("@")[0].rpartition("/")
        own = f"{head}{slash}{name.partition(':')[0]}"
        return f"{own or repository}@{digest}"


class RunEngine(StatusModel):
    """The Engine of the job, as it was when the job ended."""

    name: str
    image: _Text
    command: Annotated[list[str], Field(max_length=32)] = Field(default_factory=list)
    defaults: Annotated[
        dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ] = Field(default_factory=dict)
    """Defaults of the parameters that the job leaves out."""


class JobProvenance(StatusModel):
    """Facts that a repetition of the run needs. Start, end, restarts, figures and checkpoints are in other
    fields of the status.
    """

    generation: int
    """`metadata.generation` when the job ended."""
    spec_digest: str
    """SHA-256 of the spec when the job ended, without fields that have their defaults."""
    engine: RunEngine | None = None
    """Absent for a job without an Engine."""
    images: Annotated[list[RunImage], Field(max_length=MAX_IMAGES)] = Field(default_factory=list)
    revision: _Text = ""
    """Commit of the code: the annotation `convoy.dev/code-revision`, or a setting of the program."""
    dataset: _Text = ""
    """Version of the data: the annotation `convoy.dev/dataset-version`, or a setting of the program."""
    seed: _Text = ""
    """Seed that the program got."""
    convoy: _Text = ""
    """Version of the operator that ended the job."""
    python: _Text = ""
    """Version of Python in the ranks; several versions are separated by commas."""
    torch: _Text = ""
    """Version of torch in the ranks. Absent if the program did not load it."""
    nodes: Annotated[list[str], Field(max_length=MAX_NODES)] = Field(default_factory=list)
    """Nodes of the last incarnation, at most 32."""
    node_count: int = 0
    hardware: Annotated[list[_Text], Field(max_length=MAX_HARDWARE)] = Field(default_factory=list)
    """Hardware of these nodes, by their labels: the product of the GPUs and the type of the machine."""
    missing: Annotated[list[_Text], Field(max_length=MAX_MISSING)] = Field(default_factory=list)
    """Parts that the record lacks, so that nobody can repeat the run exactly. Absent if it is complete."""
