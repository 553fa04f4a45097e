"""Measures the analysis of Experiments, their perturbations, and the study of learned controllers."""
