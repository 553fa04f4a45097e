"""The CSI node driver: how the kubelet tells the agent of a pod, and how a pod gets its folder."""
