"""Scaling of a ServingJob's roles: by Convoy's own autoscaler, or by a HorizontalPodAutoscaler."""
