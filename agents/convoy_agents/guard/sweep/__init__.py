"""Health sweeps on the node: what is measured, each measurement in a child process that can be killed."""
