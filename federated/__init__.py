"""Federated fine-tuning with device-level differential privacy (DP-FTRL)."""
