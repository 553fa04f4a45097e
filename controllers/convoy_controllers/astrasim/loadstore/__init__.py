"""Collectives at the level of loads and stores of cache lines, with a model of the GPUs that execute them.

A GPU runs workgroups. Each one moves its slice of the message line by line and has a bounded number of lines
in flight. Data lines cross the links of the fabric, which serialise them (data path). Flags, waits, fences
and barriers order the phases of the collective (control path). So four limits show up together: the bandwidth
of a link, the latency of a request times the lines in flight (Little's law), the issue rate, and the control
path.

    throughput of a GPU = min(bandwidth, workgroups x outstanding x line / round-trip time)

`parameters` describes a run, `limits` checks one, `algorithms` gives the phases of a collective, `program`
the operations of a workgroup, `fabric` the routes, `events` plays every line, `analytical` computes the time
in closed form, `run` chooses between the two by size, and `sweep` explores a design space.

Times are exact: `ticks` divides a nanosecond such that each duration is a whole number of ticks.

Sources of the facts; this is an independent implementation and contains no code of theirs:
- Loads and stores of 64 or 128 bytes by workgroups on compute units, a bound of requests in flight for each
  unit, semaphores, fences and barriers as requests of their own, put and get with their different control
  paths, control messages that queue behind data: ASTRA-sim 3.0, Won et al. 2026, arXiv 2606.10440.
- put, signal, wait and flush; one-phase and two-phase all-pairs all-reduce: MSCCL++, Shah et al. 2025,
  arXiv 2504.09014.
- One-shot moves the whole message to each peer and two-shot one shard: ROCm/rocm-systems pull request 9748.
- Little's law: J. D. C. Little, Operations Research 9(3), 1961.
"""
