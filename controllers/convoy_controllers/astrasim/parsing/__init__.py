"""Reads simulations from JSON values. Errors name the path of the field."""
