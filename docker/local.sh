#!/usr/bin/env bash
# Airflow and the MLflow UI on this machine, loopback only: `make up` and `make down` (AIRFLOW_PORT, MLFLOW_PORT).
# Its services are started one by one, because `airflow standalone` lets log servers listen on every interface.
set -euo pipefail
set -m # every service leads a process group of its own, which `down` stops as a whole

state=$AIRFLOW_HOME/up
export AIRFLOW_PORT=${AIRFLOW_PORT:-8080} MLFLOW_PORT=${MLFLOW_PORT:-5000}
runs=${TACIT_RUNS_DIR:-$PWD/runs}
passwords=$AIRFLOW_HOME/simple_auth_manager_passwords.json.generated

# When a process started; empty when it is gone. A number alone may by now be somebody else's process.
birth() { LC_ALL=C ps -o lstart= -p "$1" 2>/dev/null || true; }

start() {
    local name=$1
    shift
    nohup "$@" >"$state/$name.log" 2>&1 </dev/null &
    printf '%s\n%s\n' "$!" "$(birth $!)" >"$state/$name.pid"
}

running() { # pid file -> its process group, if that is still what was started
    local pid born
    { read -r pid && read -r born; } <"$1"
    [ -n "$born" ] && [ "$(birth "$pid")" = "$born" ] && echo "$pid"
}

free() { .venv/airflow/bin/python - "$1" <<'PYTHON'
import socket, sys
with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sys.exit(probe.connect_ex(("127.0.0.1", int(sys.argv[1]))) == 0)
PYTHON
}

answers() { .venv/airflow/bin/python - "$1" <<'PYTHON'
import sys, urllib.error, urllib.request
try:
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=5)
except (urllib.error.URLError, OSError):
    sys.exit(1)
PYTHON
}

wait_for() { # name, address
    for _ in $(seq 90); do
        running "$state/$1.pid" >/dev/null || break
        answers "$2" && return
        sleep 1
    done
    tail -n 20 "$state/$1.log"
    echo "$1 did not start; its log: $state/$1.log"
    down
    exit 1
}

up() {
    if compgen -G "$state/*.pid" >/dev/null; then
        echo "already up; 'make down' stops it"
        exit 1
    fi
    for port in "$AIRFLOW_PORT" "$MLFLOW_PORT"; do
        free "$port" || { echo "port $port is in use; choose others: make up AIRFLOW_PORT=8081 MLFLOW_PORT=5001"; exit 1; }
    done
    mkdir -p "$state" "$runs"
    export MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
    start mlflow .venv/stages/bin/mlflow server --host 127.0.0.1 --port "$MLFLOW_PORT" --workers 1 \
        --backend-store-uri "${MLFLOW_TRACKING_URI:-sqlite:///$runs/mlflow.db}"
    set -a
    . dags/airflow.env
    AIRFLOW__CORE__DAGS_FOLDER=$PWD/dags
    set +a
    start api-server .venv/airflow/bin/airflow api-server
    start scheduler .venv/airflow/bin/airflow scheduler --skip-serve-logs
    start dag-processor .venv/airflow/bin/airflow dag-processor
    wait_for api-server "http://127.0.0.1:$AIRFLOW_PORT/api/v2/version"
    wait_for mlflow "http://127.0.0.1:$MLFLOW_PORT/health"
    echo "Airflow   http://127.0.0.1:$AIRFLOW_PORT   user admin, or privacy-reviewer to approve; passwords: $passwords"
    echo "MLflow    http://127.0.0.1:$MLFLOW_PORT   choose 'Model training' at the top left"
    echo "Logs      $state"
    echo "Stop      make down"
}

down() {
    local file group
    for file in "$state"/*.pid; do
        [ -e "$file" ] || continue
        if group=$(running "$file"); then
            kill -INT -- "-$group" 2>/dev/null || true
            for _ in $(seq 20); do
                kill -0 -- "-$group" 2>/dev/null || break
                sleep 1
            done
            kill -KILL -- "-$group" 2>/dev/null || true
            echo "stopped $(basename "$file" .pid)"
        fi
        rm -f "$file"
    done
}

"$1"
