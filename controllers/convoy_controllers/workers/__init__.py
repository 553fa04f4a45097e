"""Decisions about pods that run under the launcher, shared by the kinds of jobs. Pure."""
