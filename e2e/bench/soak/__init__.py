"""A bench in which everything that Convoy does runs at once, under random faults and an upgrade."""
