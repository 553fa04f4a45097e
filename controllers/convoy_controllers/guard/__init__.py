"""The straggler detector and the rules of health sweeps. Pure: no clock, no I/O."""
