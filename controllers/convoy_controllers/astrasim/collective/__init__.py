"""The system layer: a collective's chunks, their phases, and the algorithms that send the messages."""
