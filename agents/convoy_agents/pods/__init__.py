"""The pods of this node: their sockets, what they say, and what is reported of them."""
