"""Checkpoints in a folder of one machine, for `convoy run` and for programs started by hand.

One run at a time may use the folder. `convoy run` ensures this; users who start programs by hand must
ensure it themselves. The ranks need no agents: rank 0 writes the COMMIT record of a generation once every
rank's part is there. Rank 0 of an incarnation always ends before the next incarnation starts. So no older
incarnation commits a later record, and the newest readable record is the state of the run.
"""
