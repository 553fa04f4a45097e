"""Prediction of step times on other links, from the recorded traces of a job."""
