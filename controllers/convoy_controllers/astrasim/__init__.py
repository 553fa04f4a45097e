"""An analytical simulator of distributed training: collectives, messages and computation on a network.

The figures equal those of ASTRA-sim's analytical simulator to the nanosecond. Where ASTRA-sim hangs, aborts
or crashes, this simulator ends and reports a finding with rank and node. Pure: no clock, no cluster, no I/O.

A run has three layers, one folder each: `network` (delays, links, matching), `collective` (chunks, phases,
algorithms) and `workload` (the nodes of a rank).
`parameters` describes a simulation, `parsing` reads one, `run` plays one, `result` holds the figures, and
`oracle` compares them with the figures in a file.

Source of the behaviour: astra-sim/astra-sim at commit 518bd513ae110428cd62eb60efc0f3993fd53c70 and
astra-sim/astra-network-analytical at commit 599a0473a9a74f5383f73b3cea5a12b9bc5ebaef (both MIT). This is an
independent implementation and contains no code of theirs.
"""
