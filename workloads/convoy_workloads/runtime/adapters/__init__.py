"""Adapters that offer Convoy's checkpoints through the interfaces of other libraries."""
