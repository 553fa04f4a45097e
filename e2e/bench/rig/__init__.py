"""The rig of the scale benches: a control plane, an operator, fake nodes, and simulated agents with real
sessions.
"""
