"""Converts torch's host and Kineto traces of one rank to a Chakra trace.

The rules, and the files that hold them:

1. Each thread is a sequence of *segments*: intervals in which one operator itself runs, not an operator
   that it calls (`segments.py`).
2. A segment depends on the previous one of its thread, on the producers of its inputs, and after idle time
   on the segments of other threads that ended last (`dependencies.py`).
3. The time between the end of the last dependency and the start is kept as `host_gap_us`.
4. A segment in which the host waits for a communication starts at the end of the communication (`waits.py`).
5. A communication is one node of its own, with the bytes that this rank puts in (`works.py`).

Each dependency ends before the node starts, so a replay gives the measured times.
"""
