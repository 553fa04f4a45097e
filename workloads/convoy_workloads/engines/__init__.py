"""The engines, one folder each. `registry.py` lists them."""
