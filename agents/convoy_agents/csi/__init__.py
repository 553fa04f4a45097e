"""The CSI node driver. Through it the kubelet reports a pod to the agent, and the pod gets its folder."""
