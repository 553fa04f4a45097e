"""The commands of `convoy guard`, which explain the health of nodes and record decisions about nodes."""
