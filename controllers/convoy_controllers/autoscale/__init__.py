"""The autoscaler: the rules of HorizontalPodAutoscaler v2 as of Kubernetes 1.36, and scale to zero. Pure: no
clock, no cluster, no I/O.

`decide.decide` makes one decision. `spec` holds its settings, `samples` its input and `state` the memory
between two decisions.

Source: k8s.io/kubernetes v1.36.3, pkg/controller/podautoscaler (Apache-2.0). The arithmetic and the order of
the rules are those of that package, so that a decision equals the one that Kubernetes would make.
"""
