"""Functions that turn cached objects into the content of pages. They have no side effects."""
