# Python and PyTorch for CPUs, and nothing of Convoy: the common lower part of the images that train or serve, and
# what runs a user's unmodified script. `make images` builds it; with another builder, let `make images` lay out the
# context first, then
#   docker build -f images/torch.Dockerfile -t convoy/torch:dev build/images/torch
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

RUN groupadd --gid 65532 convoy && useradd --uid 65532 --gid 65532 --create-home --no-log-init convoy
ENV PATH=/opt/convoy/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The argument names the content of the mounted folder: builders do not look into a mount to see that it changed.
ARG DEPENDENCIES=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    echo "dependencies ${DEPENDENCIES}" && \
    python -m venv --without-pip /opt/convoy && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --find-links /wheelhouse --requirement /wheelhouse/requirements.txt

USER 65532:65532
WORKDIR /home/convoy
