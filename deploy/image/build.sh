#!/usr/bin/env bash
# Builds the container image without a registry: `deploy/image/build.sh [NAME:TAG]`, or `make image`.
#
# The base image is made from Debian's packages (mmdebstrap), the image from that by the Dockerfile (buildah). It runs
# as root, on a machine or in a container: chroot isolation needs neither a daemon nor user namespaces. Needed: buildah,
# mmdebstrap, Debian's package mirror, pip's index. Where pip needs settings of its own (a proxy, a mirror), hand them
# over as for any buildah: IMAGE_FLAGS="--volume /etc/pip.conf:/etc/pip.conf:ro".
#
# The result lies in buildah's own storage; `buildah push NAME:TAG docker://...` brings it to your registry.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
image=${1:-gpu-device-plugin:v$version}
suite=bookworm
work=build/image
stamp=$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-12)

for tool in buildah mmdebstrap; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install --no-install-recommends buildah mmdebstrap" >&2; exit 1; }
done
export BUILDAH_ISOLATION=chroot

# Python, what grpc is linked with, and a shell. `extract`: the packages are unpacked, not configured, so that perl and
# the rest of what Debian calls essential stay away.
run_packages=base-files,busybox,libc-bin,libpython3.11-stdlib,libstdc++6,python3.11-minimal
build_packages=$run_packages,python3-pip

# base NAME PACKAGES: the image localhost/gpu-device-plugin-base:NAME of these packages, made once. What mmdebstrap copies
# of the machine that builds (its name, its resolver) stays out.
base() {
    local name=$1 packages=$2 archive=$work/$1-$stamp.tar container
    if [ ! -e "$archive" ]; then
        echo "base image for $name: unpacking Debian packages" >&2
        mmdebstrap --quiet --variant=extract --include="$packages" \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
            --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
            "$suite" "$work/$name.new.tar" >&2
        tar --delete --file "$work/$name.new.tar" ./etc/hostname ./etc/resolv.conf
        mv "$work/$name.new.tar" "$archive"
    fi
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$archive" / >/dev/null
    # What the packages' own scripts would have done. Compiled here, since the container's root is read-only.
    buildah run "$container" -- busybox sh -c '
        for tool in cat cp env find grep head kill ln ls mkdir mv ps rm sh sleep tail; do
            [ -e "/bin/$tool" ] || busybox ln -s "$(busybox which busybox)" "/bin/$tool"
        done
        echo root:x:0:0:root:/root:/bin/sh >/etc/passwd
        echo root:x:0: >/etc/group
        # Nothing is installed here ever again: what dpkg (readline-common wants it, to register a manual) and apt left.
        busybox rm -rf $(busybox find /etc /usr /var -name apt -o -name "dpkg*") \
            /etc/cron.daily /etc/logrotate.d /lib/systemd /usr/share/gcc /usr/share/gdb /usr/share/perl5 /usr/share/polkit-1 \
            /usr/lib/*/gconv /usr/lib/python3.11/test
        [ -e /usr/bin/python3 ] || ln -s python3.11 /usr/bin/python3
        python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3.11'
    buildah commit --quiet --rm "$container" "localhost/gpu-device-plugin-base:$name" >/dev/null
}

mkdir -p "$work"
base run "$run_packages"
base build "$build_packages"

# pip in the container trusts whom this machine trusts.
# shellcheck disable=SC2086 # IMAGE_FLAGS is a list of words
buildah build --pull-never --layers --volume /etc/ssl/certs:/etc/ssl/certs:ro ${IMAGE_FLAGS:-} \
    --build-arg BASE_IMAGE=localhost/gpu-device-plugin-base:run \
    --build-arg BUILD_IMAGE=localhost/gpu-device-plugin-base:build \
    --label "org.opencontainers.image.version=$version" \
    --tag "$image" .
