"""Benches of the guard: public traces, injected faults, synthetic jobs, fleets with slow machines, and
storms.

They compare Convoy's detector with rules of other projects.
"""
