"""The pages as NiceGUI elements. They contain no logic about the cluster."""
