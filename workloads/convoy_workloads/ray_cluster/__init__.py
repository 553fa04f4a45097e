"""Ray under Convoy's launcher: the head beside the trainer, workers in pods of Independent roles.

Nothing of Ray is imported before it is needed. All calls into private parts of Ray are in `private.py`.
"""
