# Both have to be of the same Debian, whose Python the wheels are for.  The digests are of the lists of all architectures, so that linux/amd64 and
# linux/arm64 are built from the same two.  For newer ones, with all that was mended in them since:
#     docker buildx imagetools inspect debian:13-slim      (its Digest; then the same of the other)
#     docker build --build-arg BUILD=debian:13-slim@sha256:… --build-arg BASE=gcr.io/distroless/python3-debian13:nonroot@sha256:… .
ARG BUILD=debian:13-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f
ARG BASE=gcr.io/distroless/python3-debian13:nonroot@sha256:83aa8d4f74a4d7f7cf2d472054139bef71a927b76c680c0f2e1021d6b1d6d732

FROM ${BUILD} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends binutils python3-pip
WORKDIR /app/lib
COPY deploy/requirements.lock /
RUN pip install --no-cache-dir --no-compile --only-binary :all: --no-deps --require-hashes --target . --requirement /requirements.lock
# What does not run: symbols for debuggers (40 MB), tests, commands, sources in C and what is for them, other databases and other ways
# than ours of those that are used, what code and Markdown would be coloured with, docstrings.  What does is compiled once, as nobody can write it down later.
RUN find . -name '*.so' -exec strip --strip-unneeded '{}' + \
    && rm -r bin include cffi* pycparser* markdown_it* mdurl* pygments* alembic/testing sqlalchemy/testing \
        sqlalchemy/dialects/mssql sqlalchemy/dialects/mysql sqlalchemy/dialects/oracle \
        websockets/legacy websockets/sync websockets/trio \
    && find . -depth \( -type d -name tests -o -type d -name sboms -o -name 'mypy*' -o -name '*.pyi' -o -name '*.pyx' \
        -o -name '*.pxd' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \) -exec rm -r '{}' + \
    && python3 -m compileall -q -b -o 2 . \
    && find . -name '*.py' -delete
COPY gateway /app/gateway
RUN python3 -m compileall -q /app/gateway && mkdir /data

FROM ${BASE}
COPY --from=build /app/lib /app/lib
COPY --from=build /app/gateway /app/gateway
COPY --from=build --chown=65532:65532 /data /data
ENV PYTHONPATH=/app:/app/lib PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 GATEWAY_CONFIG=/etc/gateway/gateway.yaml
# The only place where it writes: the default store, ./gateway.db, and its key.
WORKDIR /data
VOLUME /data
USER 65532:65532
EXPOSE 8900
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/bin/python3", "-m", "gateway", "health"]
ENTRYPOINT ["/usr/bin/python3", "-m", "gateway"]
CMD ["serve", "--host", "0.0.0.0"]
