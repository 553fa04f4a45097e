"""The state of a tuning that a checkpoint holds: the log of its trials.

The log is one tensor of bytes with the name `tuning.json`. Its length does not change, so that a checkpoint
can be loaded into it; JSON ignores the spaces at its end.
"""

from __future__ import annotations

from typing import Any

import torch

from convoy_workloads.simulators.tuning import TuningLog, TuningPlan

FILE = "tuning.json"
_TRIAL_BYTES = 2048
"""Room for the fields of a trial besides its values and figures."""
_VALUE_BYTES, _FIGURE_BYTES = 1400, 32
"""Room for the path and value of one tuned parameter, and for one figure."""


class TuningState:
    """The log of a tuning, with `state_dict` and `load_state_dict`."""

    def __init__(self, plan: TuningPlan) -> None:
        self.log = TuningLog()
        trial = _TRIAL_BYTES + _VALUE_BYTES * len(plan.search) + _FIGURE_BYTES * len(plan.seeds)
        self._size = plan.trials * trial

    def state_dict(self) -> dict[str, Any]:
        """Return the log as a tensor of bytes. Raises ValueError if it is too long."""
        text = self.log.to_json().encode()
        if len(text) > self._size:
            raise ValueError(f"the log of the tuning has {len(text)} bytes, more than {self._size}")
        return {FILE: torch.frombuffer(bytearray(text.ljust(self._size)), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the log to that of a checkpoint."""
        self.log = TuningLog.parse(state[FILE].numpy().tobytes().decode())
