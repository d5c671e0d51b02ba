#!/usr/bin/env bash
# Airflow and the MLflow UI on this machine, loopback only: `make up` and `make down` (AIRFLOW_PORT, MLFLOW_PORT).
# Its services are started one by one, because `airflow standalone` lets log servers listen on every interface.
set -euo pipefail
set -m # every service leads a process group of its own, which `down` stops as a whole

state=$AIRFLOW_HOME/up
export AIRFLOW_PORT=${AIRFLOW_PORT:-8080} MLFLOW_PORT=${MLFLOW_PORT:-5000}
runs=${TACIT_RUNS_DIR:-$PWD/runs}
secrets=$AIRFLOW_HOME/passwords

# Start time of a process; empty if it has ended. A process id alone may have been reused.
birth() { LC_ALL=C ps -o lstart= -p "$1" 2>/dev/null || true; }

start() {
    local name=$1
    shift
    nohup "$@" >"$state/$name.log" 2>&1 </dev/null &
    printf '%s\n%s\n' "$!" "$(birth $!)" >"$state/$name.pid"
}

# One password per user, each in a file of its own that only this user can read, and in no log. Airflow's simple auth
# manager reads one file of all of them, and would log passwords that it creates, so the file is created here.
passwords() {
    local users
    users=$(sed -n 's/^AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS=//p' dags/airflow.env | tr , '\n' | cut -d: -f1)
    .venv/airflow/bin/python docker/stack/passwords.py "$secrets" $users
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

answers() { # address, process: waits until it answers; fails when the process is gone, or after five minutes
    .venv/airflow/bin/python - "$@" <<'PYTHON'
import os, sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for _ in range(300):
    try:
        opener.open(sys.argv[1], timeout=5)
        sys.exit(0)
    except OSError:
        os.kill(int(sys.argv[2]), 0)
        time.sleep(1)
sys.exit(1)
PYTHON
}

wait_for() { # name, address
    local process
    process=$(running "$state/$1.pid") && answers "$2" "$process" 2>/dev/null && return
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
    mkdir -p "$runs"
    (umask 077 && mkdir -p "$state")
    passwords
    mkdir -p "$AIRFLOW_HOME/mlflow"
    (umask 077 && : >>"$secrets/.mlflow.db")
    local names=127.0.0.1:$MLFLOW_PORT,localhost:$MLFLOW_PORT
    MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW=.venv/stages/bin/mlflow \
        MLFLOW_FOLDER=$AIRFLOW_HOME/mlflow MLFLOW_BIND=127.0.0.1:$MLFLOW_PORT MLFLOW_NAMES=$names \
        MLFLOW_ORIGIN=http://localhost:$MLFLOW_PORT MLFLOW_LOGIN_STORE_URI=sqlite:///$secrets/.mlflow.db \
        MLFLOW_BACKEND_STORE_URI=${MLFLOW_TRACKING_URI:-sqlite:///$runs/mlflow.db} \
        MLFLOW_AUTH_ADMIN_PASSWORD=$(cat "$secrets/.mlflow-admin") MLFLOW_READER_PASSWORD=$(cat "$secrets/mlflow-reader") \
        MLFLOW_FLASK_SERVER_SECRET_KEY=$(cat "$secrets/.mlflow-session") start mlflow bash docker/mlflow.sh
    set -a
    . dags/airflow.env
    AIRFLOW__CORE__DAGS_FOLDER=$PWD/dags
    AIRFLOW__CORE__PLUGINS_FOLDER=$PWD/dags/plugins
    AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE=$secrets/.airflow.json
    set +a
    start api-server .venv/airflow/bin/airflow api-server
    # Tasks are children of the scheduler; the approval's task reads the answer from Airflow.
    TACIT_AIRFLOW_URL=http://127.0.0.1:$AIRFLOW_PORT TACIT_AIRFLOW_USER=tacit-reader \
        TACIT_AIRFLOW_PASSWORD=$(cat "$secrets/tacit-reader") \
        start scheduler .venv/airflow/bin/airflow scheduler --skip-serve-logs
    start dag-processor .venv/airflow/bin/airflow dag-processor
    wait_for api-server "http://127.0.0.1:$AIRFLOW_PORT/api/v2/version"
    wait_for mlflow "http://127.0.0.1:$MLFLOW_PORT/health"
    echo "Airflow   http://127.0.0.1:$AIRFLOW_PORT   user admin, or privacy-reviewer to approve"
    echo "MLflow    http://127.0.0.1:$MLFLOW_PORT   user mlflow-reader; choose 'Model training' at the top left"
    echo "Passwords $secrets: a file each, named as the user, for this user alone"
    echo "Logs      $state"
    echo "Stop      make down"
}

alive() { # process group; what has ended and only waits for init to collect it does not count
    ps -A -o pgid=,stat= | awk -v group="$1" '$1 == group && $2 !~ /^Z/ { n++ } END { exit !n }'
}

down() {
    local file group service started=() # "GROUP NAME"
    for file in "$state"/*.pid; do
        if [ -e "$file" ] && group=$(running "$file"); then
            started+=("$group $(basename "$file" .pid)")
            kill -INT -- "-$group" 2>/dev/null || true
        fi
    done
    for _ in $(seq 40); do # twenty seconds for all of them together
        for service in ${started[@]+"${started[@]}"}; do
            alive "${service% *}" && sleep 0.5 && continue 2
        done
        break
    done
    for service in ${started[@]+"${started[@]}"}; do
        kill -KILL -- "-${service% *}" 2>/dev/null || true
        echo "stopped ${service#* }"
    done
    rm -f "$state"/*.pid
}

"$1"
