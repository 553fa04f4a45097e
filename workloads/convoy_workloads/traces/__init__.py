"""Chakra execution traces: recording, conversion, checks, replay, analysis and synthetic workloads.

- `wire/`: the file format: messages, bounded reader, atomic writer.
- `findings.py`, `attributes.py`, `trace.py`: what all parts share.
- `validate/`: checks of one trace and of all ranks' traces together.
- `torch_json/`: bounded reading of what torch's observers write.
- `convert/`: from torch's host and Kineto traces to one Chakra trace.
- `record.py`: the recorder around torch's observers, for training loops. Only this file needs torch.
- `replay.py`, `comm_models.py`, `analysis.py`: start times by dependencies, and figures.
- `generate/`: synthetic workloads.
"""
