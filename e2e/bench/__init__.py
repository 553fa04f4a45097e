"""Benches on local clusters: `python -m e2e.bench --help`. Each writes docs/bench/<name>.json."""
