"""One launch from its YAML file to a decision: stages, ledger, gates, tracking, command line."""
