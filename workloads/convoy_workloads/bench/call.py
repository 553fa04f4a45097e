"""`python -m convoy_workloads.bench.call RESULT MODULE FUNCTION ARGUMENTS`: runs a function as an arm."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Call the function with the JSON object ARGUMENTS as keywords and write its return value."""
    result, module, name, arguments = sys.argv[1:]
    found = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
