"""The commands of `convoy guard`: the health of nodes, and decisions about them."""
