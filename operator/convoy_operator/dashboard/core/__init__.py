"""From cached objects to what pages show. Pure."""
