FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY gateway gateway
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir .

FROM python:3.12-slim
RUN useradd --system --create-home gateway && install --directory --owner=gateway /data
COPY --from=build /venv /venv
USER gateway
WORKDIR /home/gateway
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8900
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", "import httpx; httpx.get('http://127.0.0.1:8900/health').raise_for_status()"]
ENTRYPOINT ["gateway"]
CMD ["serve", "--config", "/etc/gateway/gateway.yaml", "--host", "0.0.0.0"]
