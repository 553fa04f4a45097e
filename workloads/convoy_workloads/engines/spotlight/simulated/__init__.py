"""Workers on a simulated cluster with a virtual clock. The samples and the gradient steps are real."""
