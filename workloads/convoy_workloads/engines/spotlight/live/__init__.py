"""Spotlight on real workers: Ray actors on spot nodes that pull leases from the driver's ledger.

Only `exchange`, `actor` and `driver` use Ray. Everything else runs in one process, and is tested there.
"""
