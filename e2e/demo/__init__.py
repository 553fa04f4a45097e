"""`make demo`: a local cluster on which a training job survives the death of a rank and of a node."""
