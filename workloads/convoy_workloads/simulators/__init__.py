"""The simulators of the Engine `experiment-simulation`, one folder each. `registry.py` lists them.

A simulator turns parameters, a seed and at most one perturbation into figures. The same input gives the same
figures, bit for bit, so a result can be computed again from the plan.
"""
