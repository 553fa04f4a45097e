# The Engines with workers on spot nodes, on top of images/torch.Dockerfile. They use Ray.
# `make images` builds both. With another builder, build that image first, then
#   docker build -f images/ray.Dockerfile --build-arg BASE=convoy/torch:dev build/images/ray
ARG BASE=convoy/torch:dev
FROM ${BASE}

USER 0:0
# The arguments are digests of the mounted folders, because builders do not notice changes inside a mount.
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
