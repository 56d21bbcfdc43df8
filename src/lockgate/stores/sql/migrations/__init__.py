"""How the tables came to be what they are: Alembic's revisions, applied in order."""
