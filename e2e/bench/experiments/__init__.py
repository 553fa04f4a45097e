"""Measures the analysis of Experiments, and their perturbations."""
