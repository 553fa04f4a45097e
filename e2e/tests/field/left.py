"""Starts a helper in a session of its own, as experiment trackers and profilers do, and trains slowly."""

import subprocess
import sys
import time

import torch
from torch import nn

HELPER = """
import os, socket, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(("127.0.0.1", 7799))
    s.listen()
    os.write(1, b"helper: listens on 7799\\n")
except OSError as error:
    os.write(1, f"helper: {error}\\n".encode())
time.sleep(100000)
"""

helper = subprocess.Popen([sys.executable, "-c", HELPER], start_new_session=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(300):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    time.sleep(0.5)
