"""Health sweeps on the node. Every measurement runs in a child process that can be killed."""
