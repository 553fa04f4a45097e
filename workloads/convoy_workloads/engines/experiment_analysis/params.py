"""Parameters of the engine experiment-analysis. `python -m
convoy_workloads.engines.experiment_analysis.params` prints their JSON Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from convoy_crds.experiment_data import ExperimentData, PackedBlock, decompressed
from convoy_crds.experiment_status import MAX_BLOCKS


class Params(BaseModel):
    """One step of an Experiment: the registration of its plan, or the analysis of its blocks."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    action: Literal["register", "analyse"]
    """`register` checks the plan and stores it. `analyse` computes the verdicts and the report."""
    plan: dict[str, Any]
    """The plan document."""
    blocks: Annotated[list[PackedBlock], Field(max_length=MAX_BLOCKS)] = []
    """The ended blocks in the short form, for `analyse`."""
    tuning: Annotated[list[dict[str, Any]], Field(max_length=16)] = []
    """Rows of the Experiment's `status.tuning`."""
    data: str = ""
    """Blocks, tuning and deviations from the plan, compressed, instead of `blocks` and `tuning`: base64 of
    zlib of JSON.
    """
    folder: str = ""
    """Folder to which the files are also written; empty for none. It is for runs on your own machine."""

    def given(self) -> ExperimentData:
        """Return the data. Raises ValueError if the compressed ones are malformed."""
        if self.data:
            return decompressed(self.data)
        return ExperimentData(blocks=self.blocks, tuning=self.tuning)


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
