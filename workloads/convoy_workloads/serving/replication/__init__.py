"""Replication of operations between the replicas of a ServingJob, which are copies of each other.

The operations set and delete keys. Their payloads are opaque. Of two operations on a key, the later one wins,
by hybrid logical clocks; clocks of machines that differ may decide between operations that nobody has
ordered.

Promised, if no more than one replica ends at a time, and the next one only after the others have exchanged
what they have (about `sync_seconds` after they reach each other):

- An acknowledged operation survives: it is in the durable log of its replica and in the memory of at least
  `copies` peers when `append` returns. By default that is one peer if there is one that has caught up.
- Replicas that can exchange messages come to have the same winner of each key, whatever was lost, repeated or
  delayed, and also for operations of replicas that have ended.
- A replica becomes ready after it has everything that each reachable peer had, and what the peer has
  acknowledged without a copy since. A replica that knows no peer, or whose peers are all without data,
  becomes ready at once, or after `join_seconds` if no peers were reported.
- Queues, retained operations and deferred ones have bounds. Beyond them `append` raises Overloaded before it
  writes anything, and peers that lack more than what is retained get states.

Not promised:

- An operation that was acknowledged with no copy is lost with the disk of its replica: with `copies=0`, or
  while a replica is the only one of its job. A log without fsync may lose it with the machine too.
- If all replicas that have an operation end at once, and their disks are lost, the operation is lost.
- An error of `append` does not undo: the operations may be applied on all replicas later.
- There are no transactions, and no reads of other replicas: an acknowledged operation is on `copies` peers,
  and reaches the others soon.
- While fewer than `copies` peers respond, nothing is acknowledged. By default a peer counts unless it has
  shown that it is still catching up or drains, so with two replicas writes wait while a process starts or
  hangs. The operator reports a replica as a peer until it has noticed its end.
- Without a token (spec.service.auth) any pod that reaches the port can write, read and confirm.
"""
