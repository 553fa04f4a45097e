"""Fabrics: the directed links of a network, and the route of each message over them."""
