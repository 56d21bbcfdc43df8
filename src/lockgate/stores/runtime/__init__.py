"""What several stores share: batching, per-loop registry, process hooks, background tasks."""
