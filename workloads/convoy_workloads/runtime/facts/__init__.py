"""Facts about a run that advice needs: its data files, and its use of processors and accelerators."""
