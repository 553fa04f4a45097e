"""Benches on local clusters: `python -m e2e.bench --help`. Each bench writes docs/bench/<name>.json."""
