# The operator. `make images` builds it. For another builder, run `make images` first to create the context, then
#   docker build -f images/operator.Dockerfile build/images/operator
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

RUN groupadd --gid 65532 convoy && useradd --uid 65532 --gid 65532 --create-home --no-log-init convoy
ENV PATH=/opt/convoy/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The arguments are digests of the mounted folders, because builders do not notice changes inside a mount.
ARG DEPENDENCIES=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    echo "dependencies ${DEPENDENCIES}" && \
    python -m venv --without-pip /opt/convoy && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --find-links /wheelhouse --requirement /wheelhouse/requirements.txt

ARG SOURCE=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse --mount=type=bind,source=dist,target=/dist \
    echo "source ${SOURCE}" && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --no-deps /dist/*.whl

USER 65532:65532
WORKDIR /home/convoy
ENTRYPOINT ["convoy-operator"]
