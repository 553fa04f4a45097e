# The engines, on top of images/torch.Dockerfile. `make images` builds both; with another builder, build that one
# first, then
#   docker build -f images/workloads.Dockerfile --build-arg BASE=convoy/torch:dev build/images/workloads
ARG BASE=convoy/torch:dev
FROM ${BASE}

USER 0:0
# The arguments name the content of the mounted folders: builders do not look into a mount to see that it changed.
ARG DEPENDENCIES=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    echo "dependencies ${DEPENDENCIES}" && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --find-links /wheelhouse --requirement /wheelhouse/requirements.txt

ARG SOURCE=unnamed
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse --mount=type=bind,source=dist,target=/dist \
    echo "source ${SOURCE}" && \
    python "$(echo /wheelhouse/pip-*.whl)/pip" --python /opt/convoy/bin/python install \
        --no-cache-dir --no-index --no-deps /dist/*.whl
USER 65532:65532
