"""The life cycle of a node's health, from a suspicion through sweep and repair to the return to service.
Pure: no I/O.
"""
