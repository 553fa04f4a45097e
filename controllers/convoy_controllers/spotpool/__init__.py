"""The controller of SpotPools: notices, drains, cost, budgets and grants. Pure."""
