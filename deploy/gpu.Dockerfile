# The image of GPU workers (deploy/gpu): the programs with CUDA, and NCCL, which they load when they start. The driver comes
# with the node, by NVIDIA's container runtime.
#
#   docker build -f deploy/gpu.Dockerfile -t annulus-gpu:dev .
ARG CUDA_VERSION=13.0.1
FROM docker.io/nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04 AS cuda
# Where it is by its version; /usr/local/cuda is a link.
RUN mv "$(readlink -f /usr/local/cuda)" /toolkit

FROM docker.io/library/debian:bookworm-slim AS nccl
# Kept in step among the workers of a group: all need the same version.
ARG NCCL_VERSION=2.28.9
ARG CUDA_VERSION
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates python3-pip \
    && python3 -m pip install --no-deps --target /nccl "nvidia-nccl-cu${CUDA_VERSION%%.*}"==${NCCL_VERSION}

FROM docker.io/library/debian:bookworm-slim AS build
WORKDIR /src
COPY tools/setup tools/packages.txt tools/requirements.txt tools/
RUN tools/setup --build-only
COPY --from=cuda /toolkit /usr/local/cuda
COPY . .
RUN bazel build //:programs \
    && install -D -t /out --strip bazel-bin/bin/*

FROM docker.io/library/debian:bookworm-slim
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        libabsl20220623 libatomic1 libgloo0 libgrpc++1.51 libisal2 libprotobuf32 libspdlog1.10 libssl3 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 annulus \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin annulus
COPY --from=nccl /nccl/nvidia/nccl/lib/libnccl.so.2 /usr/local/lib/
COPY --from=build /out/ /usr/local/bin/
RUN ldconfig
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
# Clients, control, health; data of a worker.
EXPOSE 8001 8003 8082 8004
LABEL org.opencontainers.image.title="Annulus for GPUs" \
      org.opencontainers.image.description="Exact attention as a network service: coordinator and GPU worker"
CMD ["annulus", "--help"]
