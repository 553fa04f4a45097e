"""The pages, as NiceGUI elements. They decide nothing."""
