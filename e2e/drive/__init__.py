"""Helpers that drive a real cluster: jobs, faults, watches and servers, for tests and benches alike."""
