"""The pods of this node: their sockets, their state, and their reports to the hub."""
