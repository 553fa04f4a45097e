"""Health sweeps: which node measures what and when, and what follows from its figures."""
