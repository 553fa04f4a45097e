"""The rig: a control plane, an operator, fake nodes, and simulated agents that hold real sessions."""
