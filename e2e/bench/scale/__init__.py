"""A thousand workers on fake nodes, beside JobSet."""
