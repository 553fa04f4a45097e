"""Forecasts: the predicted step of a job on the nodes where its pods may run.

`candidates` lists places for the pods, `links` reads the rates of links from node labels, `case` makes a
simulation from both, `child` plays it in a process of its own, and `ranking` compares the results.
"""
