"""Measures the analysis of Experiments."""
