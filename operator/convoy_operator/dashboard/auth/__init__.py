"""Authentication and authorization of users. The API server makes both decisions."""
