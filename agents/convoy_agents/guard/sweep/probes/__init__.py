"""The measurements themselves, one file each. Only children import them."""
