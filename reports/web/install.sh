#!/usr/bin/env bash
# Install what package-lock.json pins into the folder $1, by npm; does nothing when it is there already.
set -euo pipefail
from="$(cd "$(dirname "$0")" && pwd)"
if cmp -s "$from/package-lock.json" "$1/installed.json"; then exit 0; fi
command -v npm >/dev/null || { echo "keyboard pages need npm, of Node.js (on Debian: apt-get install npm)"; exit 1; }
mkdir -p "$1"
cp "$from/package.json" "$from/package-lock.json" "$1"
cd -P "$1" # npm takes a folder behind a link for a package of the link's name
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
cp package-lock.json installed.json
