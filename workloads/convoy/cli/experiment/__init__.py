"""The commands `convoy experiment`."""
