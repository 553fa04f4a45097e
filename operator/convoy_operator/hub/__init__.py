"""The hub: the leader's server for node agents, with certificates, streams and liveness."""
