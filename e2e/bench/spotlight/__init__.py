"""Bench of the engine spotlight on a virtual clock, with real gradient steps."""
