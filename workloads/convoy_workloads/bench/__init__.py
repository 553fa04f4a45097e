"""The kit of benches: arms in turns, figures with their spread, equalities and a negative control.

An engine's `bench.py` ends in `BENCH = Bench(...)`; `python -m convoy_workloads.bench` runs them.
"""
