"""Models for serving pods: downloads of generations, one copy per node, and their delivery to pods."""
