"""The serving front: an HTTP server, a compute thread and the life of a serving rank. The front knows no
engine; an engine implements the protocol in `protocol.py`.

    request -> openai/, kserve -> Generation -> ComputeLoop (one thread) -> engine.step()
                                     ^                          |
                                     +---- deltas, once a step -+
"""
