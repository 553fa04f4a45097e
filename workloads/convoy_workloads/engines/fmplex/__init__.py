"""The engine fmplex: many tasks on one shared backbone, with fair queueing."""
