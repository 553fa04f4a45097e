"""Command lines as users write them: read alike by the launcher, the operator and `convoy validate`.

Standard library only, for any Python from 3.9: the launcher runs in the user's image.
"""
