"""How calls reach Redis servers: settings, connections, pipelines, topologies."""
