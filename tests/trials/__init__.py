"""Trials of reliability: small in tests/test_trials.py, large by python -m tests.trials.NAME."""
