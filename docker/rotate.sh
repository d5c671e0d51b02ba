#!/usr/bin/env bash
# New passwords and keys for the stack of this machine, while it runs: bash docker/rotate.sh && make stack-down stack
# Airflow's Fernet key stays, as what it encrypted would be lost. If this is interrupted, run it again.
set -euo pipefail
umask 077
home=${STACK_HOME:-.stack} old=${STACK_HOME:-.stack}/secrets.old.env
value() { sed -n "s/^$2=//p" "$1"; }
ask() { PGPASSWORD=$1 psql --quiet --no-psqlrc --single-transaction --set ON_ERROR_STOP=1 --username postgres \
    --host 127.0.0.1 --port "${POSTGRES_PORT:-15432}"; }

if [ ! -e "$old" ]; then
    cp "$home/secrets.env" "$old"
    rm -r "$home/passwords"
    grep '^AIRFLOW_FERNET_KEY=' "$old" >"$home/secrets.env"
fi
.venv/airflow/bin/python docker/stack environment airflow >/dev/null  # draws what is missing

# MLflow keeps a hash in its own database. No password is in an argument, as any user can read a command line.
OLD=$(value "$old" MLFLOW_PASSWORD) NEW=$(value "$home/secrets.env" MLFLOW_PASSWORD) \
    .venv/airflow/bin/python - "http://127.0.0.1:${MLFLOW_PORT:-5000}/api/2.0/mlflow/users" <<'PYTHON'
import base64, json, os, sys, urllib.error, urllib.request

old, new = os.environ["OLD"], os.environ["NEW"]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(path, password, method, body=None):
    login = base64.b64encode(f"mlflow:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    opener.open(urllib.request.Request(f"{sys.argv[1]}/{path}", body, headers, method=method), timeout=60)


try:
    change = {"username": "mlflow", "current_password": old, "password": new}
    ask("update-password", old, "PATCH", json.dumps(change).encode())
except urllib.error.HTTPError as error:
    if error.code != 401:
        sys.exit(f"rotate: MLflow: {error.read().decode()}")
    ask("get?username=mlflow", new, "GET")  # changed before this was interrupted
PYTHON
# PostgreSQL: all users or none.
before=$(value "$old" POSTGRES_PASSWORD) after=$(value "$home/secrets.env" POSTGRES_PASSWORD)
if ! ask "$after" </dev/null 2>/dev/null; then
    for user in airflow mlflow mlflow_login ledger; do
        echo "ALTER USER $user PASSWORD '$(value "$home/secrets.env" "${user^^}_DB_PASSWORD")';"
    done | { cat; echo "ALTER USER postgres PASSWORD '$after';"; } | ask "$before"
fi
rm "$old"
echo "new secrets in $home; give them to the services: make stack-down stack"
