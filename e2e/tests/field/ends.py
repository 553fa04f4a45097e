"""A module-level file that is never closed. After `python ends.py FILE` the file has three lines."""

import sys

metrics = open(sys.argv[1], "w")  # noqa: SIM115, PTH123 - the point of it
for epoch in range(3):
    metrics.write(f"epoch {epoch} accuracy 0.{epoch}\n")
print("script has finished", flush=True)
