"""Library for benches that compare an engine with other programs. It runs the programs alternately, reports
figures with their spread, checks that results are equal, and has a negative control.

The `bench.py` of an engine defines `BENCH = Bench(...)`. `python -m convoy_workloads.bench` runs it.
"""
