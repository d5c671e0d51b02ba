#!/bin/sh
# Lines of the Secret `tacit-secrets`, from the file of `make stack`'s secrets and from the environment:
#     sh secrets.sh .stack/secrets.env | kubectl -n tacit create secret generic tacit-secrets --from-env-file=/dev/stdin
set -eu
. "$1"
cat "$1"
# The names that Airflow's chart looks for.
echo "connection=postgresql+psycopg2://airflow:$AIRFLOW_DB_PASSWORD@postgres:5432/airflow"
echo "fernet-key=$AIRFLOW_FERNET_KEY"
echo "jwt-secret=$AIRFLOW_JWT_SECRET"
echo "api-secret-key=$AIRFLOW_SECRET_KEY"
# Of the client `airflow` in Keycloak, and of its user tacit-reader.
echo "KEYCLOAK_CLIENT_SECRET=${KEYCLOAK_CLIENT_SECRET:?the secret of the client airflow in Keycloak}"
# Where notices go; empty: nowhere.
echo "AIRFLOW_CONN_SMTP_DEFAULT=${AIRFLOW_CONN_SMTP_DEFAULT-}"
echo "AIRFLOW_CONN_TACIT_WEBHOOK=${AIRFLOW_CONN_TACIT_WEBHOOK-}"
