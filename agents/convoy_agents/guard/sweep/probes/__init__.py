"""The probes, one file each. Only children import them."""
