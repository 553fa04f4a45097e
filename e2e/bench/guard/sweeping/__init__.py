"""Sweeps of fleets that are made up: their noise, and the rules that judge them."""
