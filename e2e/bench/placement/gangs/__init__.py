"""Twenty gangs that arrive at once on room for two: with each gang backend, beside JobSet."""
