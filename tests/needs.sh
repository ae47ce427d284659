#!/usr/bin/env bash
# What the tests need from the system: Node for real clients, tmux for the terminal client, Chromium for web pages,
# Caddy for the container's front. Missing ones are installed where that is possible (Debian, as root), else named.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("${2:-$1}"); }
need make
need git
need ps procps
need node nodejs
need tmux
need chromium
need caddy
# Only where there are none: an upgrade would undo a machine's own changes to them.
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
python="$(command -v python3.11 || command -v python3 || true)"
if [ -z "$python" ] || ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    missing+=(python3 python3-venv)
fi
# Debian has npm apart; other packagings of Node bring it, and conflict with Debian's.
command -v node >/dev/null 2>&1 && need npm
[ "${#missing[@]}" -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "the tests need: ${missing[*]} (on Debian: sudo apt-get install ${missing[*]})" >&2
    exit 1
fi
install() {
    echo "installing: $*"
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null </dev/null
}
apt-get update -qq </dev/null
install "${missing[@]}"
command -v npm >/dev/null 2>&1 || install npm
