"""The commands of `convoy trace`, which convert, check, replay, generate and show Chakra execution traces."""
