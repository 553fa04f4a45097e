"""The code of the probes that run in child processes. Only child processes import it, except for
`inventory.PYTHON`.
"""
