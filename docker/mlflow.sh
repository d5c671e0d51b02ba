#!/usr/bin/env bash
# MLflow's server with a login, serving artifacts: for compose.yaml, `make stack` and `make up` (mlflow.env).
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
# The admin is the product itself. People log in as mlflow-reader, who can change nothing that the product made: a browser
# then holds no password that can, as MLflow accepts a browser's writes from every port of localhost. Each start sets it.
"$(dirname "$(command -v "${MLFLOW:-mlflow}")")/python" - <<'PYTHON' &
import base64, json, os, time, urllib.error, urllib.request

login = base64.b64encode(f"mlflow:{os.environ['MLFLOW_AUTH_ADMIN_PASSWORD']}".encode()).decode()
headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
headers["Host"] = os.environ["MLFLOW_NAMES"].split(",")[0]
body = json.dumps({"username": "mlflow-reader", "password": os.environ["MLFLOW_READER_PASSWORD"]}).encode()
address = f"http://127.0.0.1:{os.environ['MLFLOW_BIND'].rpartition(':')[2]}/api/2.0/mlflow/users"
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
method, path = "POST", "create"
for _ in range(600):
    try:
        opener.open(urllib.request.Request(f"{address}/{path}", body, headers, method=method), timeout=30)
        break
    except urllib.error.HTTPError as error:
        if (error.code, path) != (400, "create"):
            raise SystemExit(f"mlflow-reader: MLflow answers {error.code}")
        method, path = "PATCH", "update-password"  # it exists
    except OSError:
        time.sleep(1)
PYTHON
exec "${MLFLOW:-mlflow}" server --app-name basic-auth --host "${MLFLOW_BIND%:*}" --port "${MLFLOW_BIND##*:}" --workers 1 \
    --artifacts-destination "$MLFLOW_FOLDER/artifacts" --allowed-hosts "$MLFLOW_NAMES" --cors-allowed-origins "$MLFLOW_ORIGIN"
