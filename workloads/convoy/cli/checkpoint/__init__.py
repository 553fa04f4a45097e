"""The commands of `convoy checkpoint`: list, verify, restore, export and delete saved checkpoints."""
