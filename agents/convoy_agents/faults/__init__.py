"""Faults that the agent injects into pods of an Experiment.

The agent injects a fault only if the operator orders it and all rules hold (rules.py). Before each change it
writes to disk how to undo the change (record.py). It undoes a fault by its own timer, when the operator
orders it, when the rules no longer hold, when the agent stops, and when the next agent starts (injector.py).
So a fault never outlives the operator, the Experiment or the agent.
"""
