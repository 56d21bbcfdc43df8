"""The store in process memory: keys, accounts, windows and slots."""
