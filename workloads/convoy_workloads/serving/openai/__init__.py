"""OpenAI's routes for completions and chat, whole or as server-sent events."""
