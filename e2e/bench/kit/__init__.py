"""Figures, their files and options: the parts that all benches share."""
