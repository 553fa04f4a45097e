"""Simulation of the checkpoint protocol in virtual time, with node failures, agent restarts and lost
messages.
"""
