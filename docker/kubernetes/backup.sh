#!/bin/sh
# Dumps of PostgreSQL's databases into FOLDER/DATABASE: of the ledger at each run, of the others once a day.
#     backup.sh FOLDER          (libpq's variables name the server)
# Restore: createdb DATABASE; pg_restore --dbname DATABASE FILE; then `tacit ledger verify` (docs/settings.md).
set -eu
umask 077
for name in ledger airflow mlflow mlflow_login; do
    folder=$1/$name
    mkdir -p "$folder"
    if [ "$name" != ledger ] && [ -n "$(find "$folder" -name '*.dump' -mmin -1400)" ]; then
        continue
    fi
    part=$folder/part
    pg_dump --format=custom --file="$part" "$name"
    pg_restore --list "$part" >/dev/null # a dump counts once it is whole
    mv "$part" "$folder/$(date -u +%Y-%m-%dT%H-%M-%S).dump"
    find "$folder" -name '*.dump' -mtime +14 -delete
done
