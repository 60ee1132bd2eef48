# The container image of Lunaport: the program, the shared libraries it asks for and a state volume; no shell.
#
#   buildah bud --format docker -t lunaport .        (or: docker build -t lunaport .)
#   podman run --read-only -v lunaport:/var/lib/lunaport -p 3260:3260 -e LUNAPORT_EXPORT=memory:1G lunaport
#
# BASE is an image of Debian 12; name your own where no registry can be reached.
# RDMA's libraries are in it where the builder has them; devices are the host's to give (--device /dev/infiniband).
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
        apt-get install -y --no-install-recommends ca-certificates cargo-web gcc libc6-dev rustc-web \
            ibverbs-providers libclang-common-14-dev libclang1-14 libibverbs-dev librdmacm-dev pkg-config; \
        cargo build --release --locked --package appliance --features iser; \
        program=target/release/lunaport; \
    fi; \
    install -D "$program" /out/usr/bin/lunaport; \
    for library in $(ldd /out/usr/bin/lunaport | grep -o '/[^ ]*'); do \
        install -D "$library" "/out$library"; \
    done; \
    for library in /usr/lib/*/libibverbs.so.1 /usr/lib/*/librdmacm.so.1 /usr/lib/*/libibverbs/*.so \
            /usr/lib/*/libnl-3.so.200 /usr/lib/*/libnl-route-3.so.200 /etc/libibverbs.d/*; do \
        [ ! -e "$library" ] || install -D "$library" "/out$library"; \
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
