"""Bounded reading of the JSON files that torch's observers write: the host trace and the Kineto trace."""
