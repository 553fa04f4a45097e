"""End-to-end tests and the local cluster that they run on."""
