"""The code that runs in the containers: the launcher, the runtime for engines, and the engines."""

from pkgutil import extend_path

# The agent mounts launcher and runtime beside an image that may hold the engines: one package in two folders.
__path__ = extend_path(__path__, __name__)
