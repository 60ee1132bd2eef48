# The container image of Lunaport: the program, the shared libraries it asks for and a state volume; no shell.
#
#   buildah bud --format docker -t lunaport .        (or: docker build -t lunaport .)
#   podman run --read-only -v lunaport:/var/lib/lunaport -p 3260:3260 -e LUNAPORT_EXPORT=memory:1G lunaport
#
# BASE is an image of Debian 12; name your own where no registry can be reached.
# PROGRAM is the path of an already built lunaport below this directory; without it the builder compiles this tree.

ARG BASE=docker.io/library/debian:12-slim

FROM ${BASE} AS builder
ARG PROGRAM=
COPY . /src
WORKDIR /src
# Debian 12's plain rustc is too old for edition 2024; rustc-web is the one that its security team keeps current.
RUN set -eu; \
    program="$PROGRAM"; \
    if [ -z "$program" ]; then \
        apt-get update; \
        apt-get install -y --no-install-recommends ca-certificates cargo-web gcc libc6-dev rustc-web; \
        cargo build --release --locked --package appliance; \
        program=target/release/lunaport; \
    fi; \
    install -D "$program" /out/usr/bin/lunaport; \
    for library in $(ldd /out/usr/bin/lunaport | grep -o '/[^ ]*'); do \
        install -D "$library" "/out$library"; \
    done; \
    mkdir -p /out/etc /state; \
    echo 'lunaport:x:3260:3260::/var/lib/lunaport:/usr/sbin/nologin' > /out/etc/passwd; \
    echo 'lunaport:x:3260:' > /out/etc/group

FROM scratch
COPY --from=builder /out /
COPY --from=builder --chown=3260:3260 /state /var/lib/lunaport
ENV PATH=/usr/bin \
    LUNAPORT_PORTAL=0.0.0.0:3260 \
    LUNAPORT_STATE_DIR=/var/lib/lunaport
USER 3260:3260
VOLUME /var/lib/lunaport
EXPOSE 3260/tcp
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["lunaport", "health"]
ENTRYPOINT ["lunaport", "serve"]
