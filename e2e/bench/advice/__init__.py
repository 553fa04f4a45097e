"""What the remedies of advice are worth: measured beside what a user has without them."""
