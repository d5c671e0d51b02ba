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

# PostgreSQL: all users or none. Passwords are in no argument, as any user can read a command line.
before=$(value "$old" POSTGRES_PASSWORD) after=$(value "$home/secrets.env" POSTGRES_PASSWORD)
if ! ask "$after" </dev/null 2>/dev/null; then
    for user in airflow mlflow mlflow_login ledger; do
        echo "ALTER USER $user PASSWORD '$(value "$home/secrets.env" "${user^^}_DB_PASSWORD")';"
    done | { cat; echo "ALTER USER postgres PASSWORD '$after';"; } | ask "$before"
fi
# MLflow keeps a hash in its own database; one that has the new password refuses the old one.
NO_PROXY=127.0.0.1 MLFLOW_TRACKING_URI=http://127.0.0.1:${MLFLOW_PORT:-5000} MLFLOW_TRACKING_USERNAME=mlflow \
    MLFLOW_OLD=$(value "$old" MLFLOW_PASSWORD) MLFLOW_NEW=$(value "$home/secrets.env" MLFLOW_PASSWORD) \
    .venv/stages/bin/python - <<'PYTHON'
import os

from mlflow.exceptions import MlflowException
from mlflow.server import get_app_client

mlflow = get_app_client("basic-auth", os.environ["MLFLOW_TRACKING_URI"])
try:
    os.environ["MLFLOW_TRACKING_PASSWORD"] = os.environ["MLFLOW_OLD"]
    mlflow.update_user_password("mlflow", os.environ["MLFLOW_NEW"])
except MlflowException:
    os.environ["MLFLOW_TRACKING_PASSWORD"] = os.environ["MLFLOW_NEW"]
    mlflow.get_user("mlflow")
PYTHON
rm "$old"
echo "new secrets in $home; give them to the services: make stack-down stack"
