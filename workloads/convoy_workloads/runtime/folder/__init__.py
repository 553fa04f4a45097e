"""Checkpoints in a folder of one machine, for `convoy run` and programs started by hand.

One run at a time uses the folder (`convoy run` sees to that, whoever starts programs by hand sees to it
themselves), and its ranks decide by themselves: rank 0 writes a generation's COMMIT
record once every rank's part is there. Rank 0 of an incarnation is dead before the next begins, so
the newest record that can be read is the state of the run.
"""
