#!/bin/sh
# Redis as the queue of tasks, with persistent data. For compose.yaml and `make stack`.
# The password is in a file of this user, as any user can read a command line.
set -eu
umask 077
folder=${REDIS_FOLDER:-/data}
cat >"$folder/redis.conf" <<CONF
bind ${REDIS_BIND:-0.0.0.0}
port ${REDIS_PORT:-6379}
dir $folder
requirepass $REDIS_PASSWORD
appendonly yes
appendfsync always
save ""
maxmemory-policy noeviction
set-proc-title no
CONF
exec redis-server "$folder/redis.conf"
