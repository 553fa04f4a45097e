"""Decisions about silent agents. Operator, agents and simulator run the same code."""
