"""Decisions about the forming of batches and the sharing of work: groups under a token budget, the longest
job first, and the cost of a step. All functions are pure and use the standard library alone.
"""
