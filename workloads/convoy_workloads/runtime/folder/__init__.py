"""Checkpoints in a folder of one machine, for `convoy run` and programs started by hand.

One run at a time uses the folder, and its ranks decide by themselves: rank 0 writes a generation's COMMIT
record once every rank's part is there. The processes of an incarnation are dead before the next begins, so
the newest record that can be read is the state of the run.
"""
