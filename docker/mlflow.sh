#!/usr/bin/env bash
# MLflow's server with a login, on PostgreSQL, serving artifacts: for compose.yaml and `make stack` (mlflow.env).
# Addresses with passwords are in the environment and in a file of this user, as any user can read a command line.
set -euo pipefail
umask 077
export MLFLOW_AUTH_CONFIG_PATH=$MLFLOW_FOLDER/login.ini
# Without the cache every request hashes the password again: up to a second of CPU each.
cat >"$MLFLOW_AUTH_CONFIG_PATH" <<INI
[mlflow]
default_permission = READ
admin_username = mlflow
database_uri = $MLFLOW_LOGIN_STORE_URI
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 300
INI
exec "${MLFLOW:-mlflow}" server --app-name basic-auth --host "${MLFLOW_BIND%:*}" --port "${MLFLOW_BIND##*:}" --workers 1 \
    --artifacts-destination "$MLFLOW_FOLDER/artifacts" --allowed-hosts "$MLFLOW_NAMES" --cors-allowed-origins "$MLFLOW_ORIGIN"
