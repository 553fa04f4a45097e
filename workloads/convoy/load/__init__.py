"""Open-loop load on a service: arrivals, requests and the report. `convoy load` is its command."""
