# One image for every node: docker build --tag gpu-device-plugin:v0.1.0 .
#
# BASE_IMAGE is any image with Python 3.11 or later as `python3`; it is the build stage and the final one, so that the
# interpreter the environment points at is the same in both. NVIDIA's driver library is not in the image: the
# container runtime (or CDI) mounts the node's own.
ARG BASE_IMAGE=python:3.11-slim-bookworm
# The same with pip, where that one has none (deploy/image/build.sh).
ARG BUILD_IMAGE=${BASE_IMAGE}

FROM ${BUILD_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# The environment has no pip of its own: the base image's installs into it. Only wheels, each with the hash that the
# lock states: nothing is compiled here.
RUN python3 -m venv --without-pip /opt/gpu-device-plugin
COPY requirements.lock ./
RUN python3 -m pip --python /opt/gpu-device-plugin/bin/python install \
        --no-compile --only-binary :all: --require-hashes --requirement requirements.lock

COPY requirements-build.lock pyproject.toml README.md ./
COPY deviceplugin deviceplugin
RUN python3 -m venv --without-pip /build-env \
    && python3 -m pip --python /build-env/bin/python install \
        --only-binary :all: --require-hashes --requirement requirements-build.lock \
    && python3 -m pip --python /build-env/bin/python wheel \
        --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python3 -m pip --python /opt/gpu-device-plugin/bin/python install \
        --no-compile --no-deps --no-index /wheels/*.whl

# Compiled once, here: the root file system of the container is read-only. The files of an image never change under
# their compiled form, so nothing compares time stamps at start.
RUN /opt/gpu-device-plugin/bin/python -m compileall -q --invalidation-mode unchecked-hash \
        /opt/gpu-device-plugin/lib


FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="gpu-device-plugin" \
      org.opencontainers.image.description="Kubernetes device plugin for NVIDIA GPUs" \
      org.opencontainers.image.licenses="Apache-2.0"

# No installer where there is nothing to install. Not by pip itself: it refuses where a distribution installed it.
RUN python3 -c 'import importlib.util, shutil; \
        found = map(importlib.util.find_spec, ("pip", "setuptools", "pkg_resources", "wheel", "ensurepip")); \
        [shutil.rmtree(path) for spec in found if spec for path in spec.submodule_search_locations]' \
    && rm -f /usr/bin/pip* /usr/local/bin/pip*

COPY --from=build /opt/gpu-device-plugin /opt/gpu-device-plugin
RUN ln -s /opt/gpu-device-plugin/bin/gpu-device-plugin /usr/bin/gpu-device-plugin \
    && ln -s /opt/gpu-device-plugin/bin/nvidia-device-plugin /usr/bin/nvidia-device-plugin \
    && ln -s /opt/gpu-device-plugin/bin/mps-control-daemon /usr/bin/mps-control-daemon \
    && ln -s /opt/gpu-device-plugin/bin/config-manager /usr/bin/config-manager \
    && ln -s /opt/gpu-device-plugin/bin/gpu-feature-discovery /usr/bin/gpu-feature-discovery \
    && /opt/gpu-device-plugin/bin/python -c 'import deviceplugin.app.daemon' \
    && gpu-device-plugin version

# Two heaps instead of one for nearly every thread: 0.5 MiB less on every node, no slower.
ENV PYTHONDONTWRITEBYTECODE=1 \
    MALLOC_ARENA_MAX=2

# As in NVIDIA's image: its static manifest leaves it to the image to ask the container runtime for the GPUs.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# The kubelet's directories belong to root and are closed to everyone else; no capability is needed.
USER 0
ENTRYPOINT ["nvidia-device-plugin"]
