"""Synthetic fleets with noise, and the rules that find their slow nodes."""
