"""The dashboard: web pages that show the state of the cluster's objects. It changes no object."""
