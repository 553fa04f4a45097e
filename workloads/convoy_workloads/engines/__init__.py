"""The engines, a folder each. `registry.py` lists them."""
