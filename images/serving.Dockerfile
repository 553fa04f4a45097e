# The engines and the HTTP server that serves their models, on top of images/torch.Dockerfile. `make images` builds
# both. With another builder, build that image first, then
#   docker build -f images/serving.Dockerfile --build-arg BASE=convoy/torch:dev build/images/serving
ARG BASE=convoy/torch:dev
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# Compiles the kernels. The image gets only their libraries.
FROM ${PYTHON_IMAGE} AS kernels
# A mirror of Debian's packages, for a base image that names none.
ARG MIRROR=
RUN if [ -n "${MIRROR}" ]; then echo "deb ${MIRROR} bookworm main" > /etc/apt/sources.list; fi && \
    apt-get update && \
    apt-get install --yes --no-install-recommends g++ && \
    c++ --version
# The argument is a digest of the kernels' sources, so that other changes of the code compile nothing.
ARG KERNELS=unnamed
RUN --mount=type=bind,source=dist,target=/dist \
    echo "kernels ${KERNELS}" && \
    python -m zipfile -e /dist/*.whl /tmp/source && \
    cd /tmp/source && python -m convoy_workloads.kernels.build --output /built

FROM ${BASE}

USER 0:0
# The arguments are digests of the mounted folders, because builders do not notice changes inside a mount.
ARG DEPENDENCIES=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    echo "dependencies ${DEPENDENCIES}" && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --find-links /wheelhouse --requirement /wheelhouse/requirements.txt

COPY --from=kernels /built /opt/convoy/kernels

ARG SOURCE=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse --mount=type=bind,source=dist,target=/dist \
    echo "source ${SOURCE}" && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --no-deps /dist/*.whl && \
    ln -s /opt/convoy/kernels "$(python -c 'import convoy_workloads.kernels as found; print(found.__path__[0])')/lib"
USER 65532:65532
