"""Limits of owners other than organizations: client addresses, users and e-mails."""
