#!/bin/sh
# Run once by the postgres image: one database and one user each for Airflow, MLflow, its logins and the privacy ledger.
# They must not share one: Airflow and MLflow both keep their schema version in a table of the same name. The encoding is
# named, as a cluster made under the locale C has none: there MLflow answers 500 to a text with a sign beyond ASCII.
set -eu
for name in airflow mlflow mlflow_login ledger; do
    case $name in
    airflow) password=$AIRFLOW_DB_PASSWORD ;;
    mlflow) password=$MLFLOW_DB_PASSWORD ;;
    mlflow_login) password=$MLFLOW_LOGIN_DB_PASSWORD ;;
    ledger) password=$LEDGER_DB_PASSWORD ;;
    esac
    # psql quotes the variables itself, so a password may hold any character.
    psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --set name="$name" --set password="$password" <<'SQL'
CREATE USER :"name" PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name" ENCODING 'UTF8' TEMPLATE template0;
SQL
done
