"""The requests of serving pods: reports of ranks and scraped metrics, on their way to the hub."""
