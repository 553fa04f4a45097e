"""Compares Convoy's autoscaler with the HorizontalPodAutoscaler of Kubernetes.

`program` is a Go program around the real code. Random cases go to both sides, and each difference is a fault.
A case and its result are JSON documents; README.md describes them.
"""
