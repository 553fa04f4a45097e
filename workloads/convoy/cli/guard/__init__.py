"""`convoy guard`: nodes that are slow, what speaks against them, and what people say about it."""
