# cargo xtask release && docker build -t vosti .
# docker run --rm -p 127.0.0.1:8000:8000 -v vosti-models:/var/lib/vosti vosti
# What it is and how to run it: docs/deploy.md.
FROM debian:bookworm-slim AS archive
# Set by docker: amd64 or arm64.
ARG TARGETARCH
COPY target/release-files/vosti-*.tar.gz /
RUN case "$TARGETARCH" in arm64) processor=aarch64 ;; *) processor=x86_64 ;; esac && \
    tar -xzf "/vosti-$processor-unknown-linux-gnu.tar.gz" --strip-components=1

FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
# Models are kept where a volume can be mounted; nothing else is written.
RUN useradd --system --uid 10001 --home-dir /var/lib/vosti --create-home vosti
COPY --from=archive /vosti /usr/local/bin/vosti
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
