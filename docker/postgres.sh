#!/bin/sh
# PostgreSQL of `make stack`, on loopback, in a cluster of its own, which the first start creates. It refuses root: then
# it runs as user postgres, who must reach POSTGRES_FOLDER.
set -eu
cd /
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=postgres --regid=postgres --clear-groups"
if [ ! -f "$POSTGRES_FOLDER/PG_VERSION" ]; then
    rm -rf "$POSTGRES_FOLDER"
    secret=$(umask 077 && mktemp) && printf %s "$POSTGRES_PASSWORD" >"$secret"
    install -d -m 0700 "$POSTGRES_FOLDER"
    [ -z "$as" ] || chown postgres:postgres "$POSTGRES_FOLDER" "$secret"
    $as "$bin/initdb" -D "$POSTGRES_FOLDER" -U postgres -A scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 --pwfile="$secret"
    rm "$secret"
fi
unset POSTGRES_PASSWORD
exec $as "$bin/postgres" -D "$POSTGRES_FOLDER" -c port="$POSTGRES_PORT" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= -c max_connections=200
