"""Measurement of the time that a rank's steps spend on each activity. It needs no changes to the user's
code, and sends its results to the agent.
"""
