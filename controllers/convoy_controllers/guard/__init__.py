"""Guard: stragglers, sweeps and the health of nodes; pure."""
