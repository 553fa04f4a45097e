"""Command-line checks and resource sampling that several benches share."""
