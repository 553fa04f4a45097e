"""Nodes' health: from what is seen of nodes and jobs to what nodes carry, and to jobs that are moved."""
