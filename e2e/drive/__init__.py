"""Helpers of tests and benches that run jobs, faults, watches and servers on a real cluster."""
