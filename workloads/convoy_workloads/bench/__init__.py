"""The kit for benches of engines: alternating arms, figures with their spread, equalities, a negative
control.

An engine's `bench.py` ends in `BENCH = Bench(...)`; `python -m convoy_workloads.bench` runs it.
"""
