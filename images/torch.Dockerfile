# Python and PyTorch for CPUs, without Convoy. It is the base of the images that train or serve, and it runs users'
# unmodified scripts. `make images` builds it. For another builder, run `make images` first to create the context, then
#   docker build -f images/torch.Dockerfile -t convoy/torch:dev build/images/torch
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

RUN groupadd --gid 65532 convoy && useradd --uid 65532 --gid 65532 --create-home --no-log-init convoy
ENV PATH=/opt/convoy/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The argument is a digest of the mounted folder, because builders do not notice changes inside a mount.
ARG DEPENDENCIES=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    echo "dependencies ${DEPENDENCIES}" && \
    python -m venv --without-pip /opt/convoy && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --find-links /wheelhouse --requirement /wheelhouse/requirements.txt

USER 65532:65532
WORKDIR /home/convoy
