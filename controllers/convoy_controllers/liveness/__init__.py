"""Decisions about silent agents. The operator, the agents and the simulator run the same code."""
