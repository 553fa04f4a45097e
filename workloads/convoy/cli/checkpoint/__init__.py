"""`convoy checkpoint`: what jobs have saved, whether it is whole, and how to take it out."""
