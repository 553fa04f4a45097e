"""The statistical analysis of Experiments: pure functions from a plan and its blocks to verdicts and
reports.
"""
