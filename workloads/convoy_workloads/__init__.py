"""The code that runs in the containers: the launcher, the runtime for engines, and the engines."""

from pkgutil import extend_path

# The agent mounts the launcher and the runtime into the container. The engines are in the image. So this
# package consists of two folders, and the path must cover both.
__path__ = extend_path(__path__, __name__)
