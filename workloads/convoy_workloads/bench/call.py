"""The command `python -m convoy_workloads.bench.call RESULT MODULE FUNCTION ARGUMENTS`, which calls a
function as an arm of a bench.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Call the function with the entries of the JSON object ARGUMENTS as keyword arguments. Write the
    return value to RESULT.
    """
    result, module, name, arguments = sys.argv[1:]
    found = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
