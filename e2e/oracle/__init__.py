"""Programs of other projects that decide as Convoy should, and comparisons with their decisions."""
