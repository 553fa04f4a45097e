"""The commands of `convoy spot`, which show spot nodes, their cost and their use."""
