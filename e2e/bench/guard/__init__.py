"""Benches of the guard: public traces, injected faults, synthetic jobs, bad fleets, storms, and rules of
others.
"""
