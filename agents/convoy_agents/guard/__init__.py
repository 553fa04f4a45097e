"""Guard on the node: what its ranks say of their steps."""
