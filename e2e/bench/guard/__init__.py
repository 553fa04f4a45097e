"""Guard's detector: replays of public traces, faults put into them, synthetic jobs, others' rules beside
it.
"""
