"""Builds the project's images without Docker, and keeps them in the local cluster's image store."""
