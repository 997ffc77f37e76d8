# docker build .                    the gateway with the packages of gateway[all]
# docker build --target slim .      the gateway without extras
#
# /app/lib/sbom.cdx.json in the image lists its packages.  The bases describe theirs in /var/lib/dpkg.
#
# Both bases have to be of the same Debian, because the wheels are for its Python.  The digests are of the lists of all architectures, for
# linux/amd64 and linux/arm64.  For newer ones:
#     docker buildx imagetools inspect debian:13-slim      (its Digest; then the same of the other)
#     docker build --build-arg BUILD=debian:13-slim@sha256:… --build-arg BASE=gcr.io/distroless/python3-debian13:nonroot@sha256:… .
ARG BUILD=debian:13-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f
ARG BASE=gcr.io/distroless/python3-debian13:nonroot@sha256:83aa8d4f74a4d7f7cf2d472054139bef71a927b76c680c0f2e1021d6b1d6d732

FROM ${BUILD} AS packages
RUN apt-get update && apt-get install --yes --no-install-recommends binutils python3-pip
RUN pip install --no-cache-dir --target /sbom cyclonedx-bom==7.5.0
WORKDIR /app/lib
COPY deploy/install_packages.sh /

FROM packages AS build
COPY deploy/requirements-all.lock /
RUN sh /install_packages.sh /requirements-all.lock

FROM packages AS build-slim
COPY deploy/requirements.lock /
RUN sh /install_packages.sh /requirements.lock

FROM packages AS code
COPY gateway /app/gateway
RUN python3 -m compileall -q /app/gateway && mkdir /data

FROM ${BASE} AS runtime
COPY --from=code /app/gateway /app/gateway
COPY --from=code --chown=65532:65532 /data /data
ENV PYTHONPATH=/app:/app/lib PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 GATEWAY_CONFIG=/etc/gateway/gateway.yaml
# The only place where it writes: the default store, ./gateway.db, and its key.
WORKDIR /data
VOLUME /data
USER 65532:65532
EXPOSE 8900
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/bin/python3", "-m", "gateway", "health"]
ENTRYPOINT ["/usr/bin/python3", "-m", "gateway"]
CMD ["serve", "--host", "0.0.0.0"]
LABEL org.opencontainers.image.title=gateway \
    org.opencontainers.image.version=0.2.0 \
    org.opencontainers.image.description="Gateway for OpenAI and Anthropic clients that repairs the streams of local model servers"

FROM runtime AS slim
COPY --from=build-slim /app/lib /app/lib

FROM runtime
COPY --from=build /app/lib /app/lib
