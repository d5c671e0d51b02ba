#!/bin/sh
# Entry point of the scheduler's image. Airflow's Helm chart names programs, and this file in its probes; compose.yaml
# names subcommands of `airflow`.
case $1 in
airflow | bash | sh | python) exec "$@" ;;
*) exec airflow "$@" ;;
esac
