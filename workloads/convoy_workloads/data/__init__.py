"""Loaders of training data whose batches are formed by the true cost of the samples: `convoy.data` for users.

The decisions are pure modules; `OnlineBatches` and `AdaptiveBuckets` are the edges to torch.
"""
