"""Code that several benches use: checks of command-line options, and samples of the memory and processor
time of processes.
"""
