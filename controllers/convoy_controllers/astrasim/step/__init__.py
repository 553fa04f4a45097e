"""A data-parallel training step on hosts in racks: its time with other links, placements and buckets."""
