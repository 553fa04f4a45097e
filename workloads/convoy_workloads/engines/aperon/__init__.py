"""The engine `aperon`: vector search by local tangent coordinates (HNTL)."""
