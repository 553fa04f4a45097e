"""Parsers for command lines as users write them. The launcher, the operator and `convoy validate` share
them.

The parsers use the standard library only and support Python from 3.9 on, because the launcher runs in the
user's image.
"""
