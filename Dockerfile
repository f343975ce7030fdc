# docker build -t vosti . && docker run --rm -p 127.0.0.1:8000:8000 -v vosti-models:/var/lib/vosti vosti
# What it is and how to run it: docs/deploy.md.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --package vosti && cp target/release/vosti /usr/local/bin/vosti

FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
# Models are kept where a volume can be mounted; nothing else is written.
RUN useradd --system --uid 10001 --home-dir /var/lib/vosti --create-home vosti
COPY --from=build /usr/local/bin/vosti /usr/local/bin/vosti
ENV XDG_CACHE_HOME=/var/lib/vosti
USER vosti
VOLUME /var/lib/vosti
EXPOSE 8000
# SIGTERM finishes what runs and refuses what is new.
STOPSIGNAL SIGTERM
# /health answers while the model loads as well; /ready says when it is loaded.
HEALTHCHECK --interval=10s --timeout=3s --retries=3 CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/8000 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["vosti"]
CMD ["serve", "--host", "0.0.0.0", "--log-format", "json"]
