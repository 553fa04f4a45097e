"""The dashboard with 500 jobs in a real browser."""
