"""Parsers for command lines as users write them, shared by the launcher, the operator and `convoy
validate`.

They use the standard library only and support Python from 3.9 on: the launcher runs in the user's image.
"""
