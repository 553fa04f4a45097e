"""Bench of placement: packing into racks, large jobs, and gangs."""
