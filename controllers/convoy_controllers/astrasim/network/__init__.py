"""The network layer: when a message arrives, and which receive it completes."""
