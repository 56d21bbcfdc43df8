"""Everything in this process: keys, accounts, windows and slots."""
