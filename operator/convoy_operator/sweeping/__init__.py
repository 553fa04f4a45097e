"""Health sweeps: from HealthSweep objects to orders, and from what nodes tell to verdicts."""
