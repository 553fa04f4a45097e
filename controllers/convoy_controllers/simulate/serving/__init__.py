"""ServingJobs in a simulated cluster: their replicas, probes, proxies and requests."""
