"""Recognizes the command lines that call a launcher which Convoy replaces."""

from __future__ import annotations

import os
from collections.abc import Sequence

from convoy_commands.python import MODULE, read_python

TORCHRUN = "torchrun"
DEEPSPEED = "deepspeed"
_MODULES = {
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "deepspeed.launcher.runner": DEEPSPEED,
}
_PROGRAMS = {"torchrun": TORCHRUN, "deepspeed": DEEPSPEED, "deepspeed.pt": DEEPSPEED, "ds": DEEPSPEED}


def launcher_of(words: Sequence[str]) -> tuple[str, int] | None:
    """Return the launcher that `words` call, and the number of words before the launcher's options. Return
    None if `words` call no launcher.
    """
    if not words:
        return None
    if launcher := _PROGRAMS.get(os.path.basename(words[0])):  # noqa: PTH119 - nothing is looked up
        return launcher, 1
    call = read_python(words)
    if call is None or call.kind != MODULE or call.target not in _MODULES:
        return None
    return _MODULES[call.target], len(words) - len(call.arguments)
