"""Communication between ranks: counted collectives, layouts of their messages, and emulated links.

- `collectives`: all-reduces with the number of calls, the bytes and the seconds.
- `triangle`, `buckets`: parts of a matrix, or many tensors, in one message.
- `linked_group`: a process group that takes as long as slower links would. The data travels by gloo.
Afterwards
  each operation waits until the time is over that it would take on the links (costs.py). The times and bytes
  follow from the sizes of tensors alone, so they are the same on any machine. `linked_group.init` replaces
  `torch.distributed.init_process_group`, so plain DistributedDataParallel and engines use the links without a
  change.
"""
