"""Checks of command-line options and samples of resource use that several benches share."""
