#!/bin/sh
# Installs a release of `vosti` for this machine: `sh install.sh [VERSION]`, the newest without a version. It checks the archive's
# SHA-256 and writes one file, VOSTI_BIN/vosti (VOSTI_BIN is ~/.local/bin if it is not set). A release's own copy of this script knows
# where its releases are; this one is told by VOSTI_RELEASES, such as https://github.com/OWNER/vosti/releases.
set -eu

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

releases=${VOSTI_RELEASES:-@RELEASES@}
case $releases in
    @*) fail "set VOSTI_RELEASES to the address of the releases: this copy of the script is not a release's" ;;
esac
folder=${VOSTI_BIN:-$HOME/.local/bin}

case $(uname -s) in
    Linux) system=unknown-linux-gnu ;;
    Darwin) system=apple-darwin ;;
    *) fail "there is no release for $(uname -s)" ;;
esac
case $(uname -m) in
    x86_64 | amd64) processor=x86_64 ;;
    aarch64 | arm64) processor=aarch64 ;;
    *) fail "there is no release for $(uname -m)" ;;
esac
target=$processor-$system
case ${1:-} in
    "") from=$releases/latest/download ;;
    *) from=$releases/download/v${1#v} ;;
esac

fetch() {
    if command -v curl >/dev/null; then
        curl -fsSL --retry 3 -o "$2" "$1"
    elif command -v wget >/dev/null; then
        wget -q -O "$2" "$1"
    else
        python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])' "$1" "$2"
    fi 2>/dev/null || fail "cannot fetch $1"
}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
archive=vosti-$target.tar.gz
fetch "$from/$archive" "$place/$archive"
fetch "$from/$archive.sha256" "$place/$archive.sha256"
cd "$place"
if command -v sha256sum >/dev/null; then sum=sha256sum; else sum="shasum -a 256"; fi
$sum -c "$archive.sha256" >/dev/null 2>&1 || fail "$archive does not have the SHA-256 of $archive.sha256"
tar -xzf "$archive"
mkdir -p "$folder"
# Beside its place first, so that a full disk leaves the former command.
cp "vosti-$target/vosti" "$folder/.vosti.$$"
chmod 755 "$folder/.vosti.$$"
mv "$folder/.vosti.$$" "$folder/vosti"
echo "installed $("$folder/vosti" --version) as $folder/vosti"
case :$PATH: in
    *:"$folder":*) ;;
    *) echo "$folder is not in PATH; add it to your shell's profile" ;;
esac
