"""Decides where the pods of a gang run: in one gang, near each other, and in the order of the ranks."""
