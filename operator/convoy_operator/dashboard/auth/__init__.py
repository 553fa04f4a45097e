"""Who looks, and what they may see: the API server decides both."""
