"""The life cycle of a node's health, from a suspicion to a sweep, a repair and back into service. Pure: no
I/O.
"""
