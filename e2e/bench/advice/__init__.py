"""Bench of advice: its remedies, measured beside what a user has without them."""
