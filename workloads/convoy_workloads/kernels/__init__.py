"""Compute kernels: C++ with intrinsics behind a plain C ABI, each with a numpy twin.

A kernel is `sources/<kernel>_<instruction set>.cpp`, one translation unit per instruction set, and a typed
wrapper `<kernel>.py`. `build` compiles each unit to its own shared library, `library` finds or builds it,
`dispatch` chooses the fastest one that agrees with the twin, and `threads` splits the work.
"""
