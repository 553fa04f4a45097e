"""Authentication and authorization of readers. The API server decides both."""
