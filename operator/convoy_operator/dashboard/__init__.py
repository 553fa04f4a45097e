"""The dashboard: what the cluster's objects say, as pages for people. It writes nothing."""
