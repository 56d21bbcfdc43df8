"""lockgate's own operations: handlers, schemas and their OpenAPI description."""
