"""Benches with faults on real nodes: the seconds to recover from each fault."""
