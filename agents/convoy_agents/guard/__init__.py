"""The straggler guard on the node. It collects ranks' step timings, identifies the hardware, and runs
health sweeps.
"""
