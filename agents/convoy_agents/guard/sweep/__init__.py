"""Health sweeps of the node. Each probe of a single node runs in a child process that the agent can kill."""
