"""The time that a rank's steps spend on each activity. Measured without changes to the user's code and sent
to the agent.
"""
