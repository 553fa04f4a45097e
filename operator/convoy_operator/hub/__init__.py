"""The hub: the leader's server for the agents on the nodes. It handles certificates, streams and liveness."""
