"""The commands of `convoy topology`, and InfraGraph files: read, expand to a graph, and write."""
