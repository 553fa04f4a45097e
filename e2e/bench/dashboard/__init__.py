"""Bench of the dashboard with 500 jobs in a real browser."""
