#!/usr/bin/env bash
# The steps of docker/Dockerfile without Docker, in a clean folder: the wheel is built and installed alone, started from
# a folder that is not the repository, and asked through a real Caddy with docker/Caddyfile.
set -euo pipefail

repo="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$(command -v python3.11 || command -v python3)}"
command -v caddy >/dev/null || { echo "smoke: caddy is needed: apt-get install caddy" >&2; exit 1; }

top="$(mktemp -d)"
gateway="" proxy=""
finish() {
    status=$?
    [ -z "$proxy" ] || kill "$proxy" 2>/dev/null || true
    [ -z "$gateway" ] || kill "$gateway" 2>/dev/null || true
    wait 2>/dev/null || true
    if [ "$status" -ne 0 ]; then
        for log in gateway caddy; do [ ! -s "$top/$log.log" ] || { echo "--- $log" >&2; tail -n 30 "$top/$log.log" >&2; }; done
    fi
    rm -rf "$top"
    exit "$status"
}
trap finish EXIT

echo "smoke: build the wheel"
mkdir -p "$top/src" "$top/dist" "$top/home" "$top/workspace" "$top/data"
# As .dockerignore has it.
(cd "$repo" && tar cf - --exclude=__pycache__ --exclude='*.pyc' \
    pyproject.toml README.md LICENSE requirements.lock requirements-build.lock gateway adapters) | tar xf - -C "$top/src"
pip="-m pip install -qq --disable-pip-version-check --no-input --root-user-action=ignore"
cd "$top/src"
"$python" -m venv "$top/build"
# shellcheck disable=SC2086
"$top/build/bin/python" $pip --require-hashes -r requirements-build.lock
"$top/build/bin/python" -m pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$top/dist" .

echo "smoke: install the locked dependencies and the wheel alone"
"$python" -m venv "$top/venv"
# shellcheck disable=SC2086
"$top/venv/bin/python" $pip --require-hashes -r requirements.lock
# shellcheck disable=SC2086
"$top/venv/bin/python" $pip --no-deps --no-index "$top"/dist/*.whl
cd "$top/workspace"
rm -rf "$top/src" "$top/build"

echo "smoke: start it as the image does"
token="smoke-$("$top/venv/bin/python" -c 'import secrets; print(secrets.token_hex(16))')"
clean=(env -i "PATH=$top/venv/bin:/usr/local/bin:/usr/bin:/bin" "HOME=$top/home" LANG=C.UTF-8 PYTHONUNBUFFERED=1
    TRUNKLINE_HOST=0.0.0.0 TRUNKLINE_PORT=0 "TRUNKLINE_DATA=$top/data" "TRUNKLINE_WORKSPACE=$top/workspace"
    TRUNKLINE_LOG_FORMAT=json)

if "${clean[@]}" trunkline serve --agent demo 2>"$top/refused.log"; then
    echo "smoke: it started on 0.0.0.0 without a token" >&2
    exit 1
fi
grep -q "no token is set" "$top/refused.log"

"${clean[@]}" "TRUNKLINE_TOKEN=$token" trunkline serve --agent demo >"$top/gateway.log" 2>&1 &
gateway=$!
for _ in $(seq 300); do
    port="$(sed -n 's/^listening on http:.*:\([0-9]*\)$/\1/p' "$top/gateway.log")"
    [ -z "$port" ] || break
    kill -0 "$gateway" 2>/dev/null || break
    sleep 0.1
done
[ -n "$port" ] || { echo "smoke: the gateway did not come up" >&2; exit 1; }

echo "smoke: ask it through Caddy"
read -r http https < <("$top/venv/bin/python" -c '
import socket
a, b = socket.socket(), socket.socket()
a.bind(("127.0.0.1", 0)); b.bind(("127.0.0.1", 0))
print(a.getsockname()[1], b.getsockname()[1])')
env "HOME=$top/home" "XDG_DATA_HOME=$top/caddy" "XDG_CONFIG_HOME=$top/caddy" SITE=localhost "UPSTREAM=127.0.0.1:$port" \
    "HTTP_PORT=$http" "HTTPS_PORT=$https" caddy run --config "$repo/docker/Caddyfile" --adapter caddyfile \
    >"$top/caddy.log" 2>&1 &
proxy=$!
TRUNKLINE_TOKEN="$token" "$top/venv/bin/python" "$repo/docker/smoke_client.py" \
    "https://localhost:$https" "$top/caddy/caddy/pki/authorities/local/root.crt"

echo "smoke: stop it"
kill -TERM "$gateway"
stopped=0
wait "$gateway" || stopped=$?
gateway=""
[ "$stopped" -eq 0 ] || { echo "smoke: it ended with status $stopped" >&2; exit 1; }
if grep -q "$token" "$top/gateway.log" "$top/caddy.log"; then
    echo "smoke: the token is in a log" >&2
    exit 1
fi
echo "smoke: passed"
