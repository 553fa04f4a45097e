"""Writes `python ends.py FILE` and never closes the file. At the end the file must have all three lines."""

import sys

metrics = open(sys.argv[1], "w")  # noqa: SIM115, PTH123 - the point of it
for epoch in range(3):
    metrics.write(f"epoch {epoch} accuracy 0.{epoch}\n")
print("script has finished", flush=True)
