"""A control plane with an operator of its own, fake nodes and agents that are played over real sessions."""
