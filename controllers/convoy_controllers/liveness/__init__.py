"""Decisions about agents that have fallen silent: operator, agents and simulator run the same code."""
