"""Notices that a node will disappear: their sources, and their way to the hub and to the pods."""
