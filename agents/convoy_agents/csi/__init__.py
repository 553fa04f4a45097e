"""The CSI node driver. The kubelet reports each new pod to the agent through this driver, and the driver
mounts the pod's folder.
"""
