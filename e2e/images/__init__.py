"""Builds the project's images without Docker and stores them in the local cluster's image store."""
