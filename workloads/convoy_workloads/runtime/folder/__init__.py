"""Checkpoints in a folder of one machine, for `convoy run` and programs started by hand.

One run at a time uses the folder. `convoy run` ensures this; programs started by hand must ensure it
themselves. The ranks decide without agents: rank 0 writes the COMMIT record of a generation once every
rank's part is there. Rank 0 of an incarnation has ended before the next incarnation begins. So the newest
readable record is the state of the run.
"""
